"""An official .npz file, loaded into a new model of the same architecture."""

import os

import keras
import numpy as np

import keras_vit
from export.portable_model import num_classes
from export.verification.runtimes.runtime import Runtime, in_batches


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
        self.output = "representation" if num_classes(model) is None else "logits"

    def run(self, images: np.ndarray) -> np.ndarray:
        return in_batches(lambda batch: self._model(batch * 2 - 1, training=False), images)
