"""A SavedModel, called as `tensorflow_hub` calls it."""

import os
from typing import Any

import keras
import numpy as np

from export.errors import ExportError
from export.verification import latency_and_memory
from export.verification.runtimes.runtime import Runtime, in_batches


class HubModule(Runtime):
    """The runtime of a TF-Hub module's directory; see `Runtime`.

    Raises:
        ExportError: if it cannot be loaded, or not be called.
    """

    kind = "hub"

    def __init__(self, path: str | os.PathLike, model: keras.Model | None = None):
        import tensorflow_hub

        self._path = path
        try:
            self._module = tensorflow_hub.load(str(path))
            signature = self._module.signatures["serving_default"]
            outputs = signature.structured_outputs
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
        (images,) = signature.structured_input_signature[1].values()
        sides = tuple(images.shape)[1:3]
        self.image_size = sides if all(sides) else None

    def run(self, images: np.ndarray) -> np.ndarray:
        return in_batches(self._module, images)

    def costs(self, threads: int, image_size: tuple[int, int]) -> dict[str, Any]:
        return latency_and_memory.measure(self._path, threads, image_size)
