"""Exported files as functions of images, run by what will run them in the end."""

import pathlib

import numpy as np

from export.errors import ExportError
from export.portable import num_classes

BATCH = 8


def open_artefact(path, model):
    """Opens an exported file or directory.

    Args:
        path: directory of a SavedModel, .tflite file or .npz checkpoint.
        model: the model that it came from.

    Returns:
        An object with `kind`, `output`, `is_measurable`, `flex_operations` and
        `run(images)`, for images in [0, 1].

    Raises:
        FileNotFoundError: if there is nothing.
        ExportError: if it is damaged or of another kind.
    """
    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return HubModule(path)
    if path.is_file() and path.suffix == ".tflite":
        return TFLiteModel(path)
    if path.is_file() and path.suffix == ".npz":
        return Checkpoint(path, model)
    if not path.exists():
        raise FileNotFoundError(f"Expected an exported model. There is nothing at {path}.")
    raise ExportError(
        "Expected the directory of a SavedModel, its .tar.gz, a .tflite file or an .npz "
        f"checkpoint. Received: {path}"
    )


class HubModule:
    """A SavedModel, called as `tensorflow_hub` calls it."""

    kind = "hub"
    is_measurable = True
    flex_operations = None

    def __init__(self, path):
        import tensorflow_hub

        try:
            self._module = tensorflow_hub.load(str(path))
            outputs = self._module.signatures["serving_default"].structured_outputs
        except Exception as error:
            # Damage shows as any of a dozen errors, depending on which file has it.
            raise ExportError(
                f"{path} cannot be loaded as a SavedModel: {type(error).__name__}: "
                f"{' '.join(str(error).split())[:500]}. Export the model again."
            ) from error
        if not callable(self._module):
            raise ExportError(
                f"Expected a TF-Hub module that can be called. Received: {path}, a SavedModel "
                "with signatures only. `python -m export hub` writes callable ones."
            )
        self.output = "logits" if "logits" in outputs else "representation"

    def run(self, images):
        batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
        return np.concatenate([self._module(batch).numpy() for batch in batches])


class TFLiteModel:
    """A TFLite file, run by LiteRT's interpreter, one image at a time."""

    is_measurable = True

    def __init__(self, path):
        from ai_edge_litert.interpreter import Interpreter

        from export.tflite.contents import TFLiteFile

        file = TFLiteFile(path)
        self.kind = file.quantization
        self.flex_operations = file.flex_operations
        try:
            self._interpreter = Interpreter(str(path), num_threads=1)
            self._runner = self._interpreter.get_signature_runner("serving_default")
        except (ValueError, RuntimeError) as error:
            raise ExportError(
                f"{path} cannot be run by LiteRT: {' '.join(str(error).split())[:500]}. Export the "
                "model again."
            ) from error
        inputs = list(self._runner.get_input_details())
        outputs = list(self._runner.get_output_details())
        if inputs != ["image"] or len(outputs) != 1:
            raise ExportError(
                "Expected a signature from `image` to one output. Received: "
                f"{path}, from {', '.join(inputs)} to {', '.join(outputs)}. Export it with "
                "`python -m export tflite`."
            )
        (self.output,) = outputs

    def run(self, images):
        results = [self._runner(image=image[None])[self.output] for image in images]
        return np.concatenate(results)


class Checkpoint:
    """An official .npz file, loaded into a new model of the same architecture."""

    kind = "npz"
    is_measurable = False
    flex_operations = None

    def __init__(self, path, model):
        import keras_vit

        self._model = type(model).from_config(model.get_config())
        for weight in self._model.weights:
            weight.assign(np.full(weight.shape, np.nan, "float32"))
        keras_vit.load_checkpoint(self._model, path)
        self.output = "representation" if num_classes(model) is None else "logits"

    def run(self, images):
        batches = [images[i : i + BATCH] * 2 - 1 for i in range(0, len(images), BATCH)]
        return np.concatenate([self._model(batch, training=False).numpy() for batch in batches])
