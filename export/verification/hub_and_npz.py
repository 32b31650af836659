"""A SavedModel, called as `tensorflow_hub` calls it, and an .npz file, loaded into Keras."""

import os

import keras
import numpy as np

import keras_vit
from keras_vit.export.errors import ExportError, damage_refused, imported
from keras_vit.export.supported_models import output_name
from keras_vit.export.verification.runtimes import Runtime, in_batches


class HubModule(Runtime):
    """The runtime of a TF-Hub module's directory; see `Runtime`.

    Raises:
        RuntimeMissing: if tensorflow-hub is not installed.
        ExportError: if it cannot be loaded, or not be called.
    """

    kind = "hub"
    has_costs = True

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        tensorflow_hub = imported("tensorflow_hub", "hub")
        with damage_refused(f"{path} cannot be loaded as a SavedModel"):
            self._module = tensorflow_hub.load(str(path))
            signature = self._module.signatures["serving_default"]
            outputs = signature.structured_outputs
        if not callable(self._module):
            raise ExportError(
                f"Expected a TF-Hub module that can be called. Received: {path}, a SavedModel "
                "with signatures only. `keras-vit export hub` writes callable ones."
            )
        self.output = "logits" if "logits" in outputs else "representation"
        (images,) = signature.structured_input_signature[1].values()
        sides = tuple(images.shape)[1:3]
        self.image_size = sides if all(sides) else None

    def run(self, images: np.ndarray) -> np.ndarray:
        return in_batches(self._module, images)


class NpzCheckpoint(Runtime):
    """The runtime of a checkpoint: Keras itself; see `Runtime`.

    Args:
        path: the .npz file.
        model: whose architecture it has.
    """

    kind = "npz"

    def __init__(self, path: str | os.PathLike, model: keras.Model):
        self._model = type(model).from_config(model.get_config())
        for weight in self._model.weights:
            weight.assign(np.full(weight.shape, np.nan, "float32"))
        keras_vit.load_checkpoint(self._model, path)
        self.output = output_name(model)

    def run(self, images: np.ndarray) -> np.ndarray:
        return in_batches(lambda batch: self._model(batch * 2 - 1, training=False), images)
