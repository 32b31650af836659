"""Inference on CPUs."""

import operator
import os
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from keras_vit.type_hints import Tensor

if TYPE_CHECKING:
    from keras_vit.backends.cpu.frozen_graph import FrozenGraph


class InferenceFunction:
    """A model frozen for inference on CPUs, which `inference_function` makes.

    Attributes:
        image_shape: (height, width, channels) of its images.
        batch_size: the most images that are computed at once.
    """

    def __init__(self, graph: "FrozenGraph", batch_size: int, constants: bool) -> None:
        self.image_shape = graph.shape[1:]
        self.batch_size = batch_size
        self._graph = graph
        self._constants = constants
        self._function = graph.function(constants)

    def __call__(self, images: Tensor) -> np.ndarray:
        """Returns the model's outputs, float32 (n, ...).

        Args:
            images: (n, height, width, channels) in the range that the model takes, n at least 1.

        Raises:
            ValueError: if the images are no array of numbers, or have another shape.
        """
        expected = f"Expected images of shape (n, {', '.join(map(str, self.image_shape))})"
        try:
            images = ops.convert_to_tensor(images, "float32")
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{expected}, an array of numbers. Received: {type(images).__name__}. "
                "keras_vit.predict takes photos and paths."
            ) from error
        if images.shape[1:] != self.image_shape or not len(images):
            raise ValueError(
                f"{expected}, at least one. Received: {tuple(images.shape)}. "
                "keras_vit.predict takes photos of any size."
            )
        starts = range(0, len(images), self.batch_size)
        batches = [images[start : start + self.batch_size] for start in starts]
        return np.concatenate([self._function(batch).numpy() for batch in batches])

    def save(self, path: str | os.PathLike) -> None:
        """Writes a file that `load_inference_function` starts from without the model.

        It holds the operations and every weight once, in the precision that it computes in.

        Args:
            path: exactly the name of the file, which appears whole or not at all.

        Raises:
            OSError: if the file cannot be written.
        """
        from keras_vit.backends.cpu.frozen_graph_saving import write_frozen_graph

        settings = {"batch_size": self.batch_size, "constants": self._constants}
        write_frozen_graph(path, self._graph, settings)


def inference_function(
    model: keras.Model, batch_size: int = 8, constants: bool | None = None
) -> InferenceFunction:
    """Returns a function from images to a model's outputs, for CPUs.

    It computes in the kernels of TensorFlow's oneDNN: layer normalization becomes one of
    them, queries, keys and values one matrix product. Nothing is approximated: results
    differ from the model's by rounding. It keeps the weights that the model has now.

    Args:
        model: a functional Keras model of images, such as `keras_vit.VisionTransformer`, of
            any precision policy, on Keras's TensorFlow backend.
        batch_size: int, the most images that are computed at once. More are computed in batches;
            fewer cost what they are.
        constants: bool, whether oneDNN reorders the weights once, in the first call, instead of in
            every call. That pays in bfloat16, its default, at the price of the reordered copy.
            None: as `model.dtype_policy` says.

    Returns:
        A function that takes images, (n, height, width, channels) in the range that the
        model takes, and returns its outputs, a float32 NumPy array (n, ...). Its `save` writes
        it to a file.

    Raises:
        ValueError: if Keras runs on another backend, `batch_size` is not a positive int, or the
            model is not one of images of one size with one output.

    Examples:
        >>> predict = keras_vit.inference_function(model)
        >>> logits = predict(images)
        >>> predict.save("classifier.inference")
    """
    _require_tensorflow("inference_function", "model.predict()")
    _require_positive(batch_size)
    if constants is None:
        constants = keras.dtype_policies.get(model.dtype_policy).compute_dtype == "bfloat16"
    shape = _image_shape(model)
    # TensorFlow is imported only where it is the backend.
    from keras_vit.backends.cpu.onednn import frozen_graph_of

    graph = frozen_graph_of(model, (None, *shape))
    return InferenceFunction(graph, int(batch_size), constants)


def load_inference_function(path: str | os.PathLike) -> InferenceFunction:
    """Returns a function that `InferenceFunction.save` wrote, without building its model.

    The file is of no processor and of no version of TensorFlow: what is fastest is found here.

    Args:
        path: the file.

    Raises:
        ValueError: if Keras runs on another backend than TensorFlow, or the file is damaged or
            not one of these.
        OSError: if it cannot be read.

    Examples:
        >>> predict = keras_vit.load_inference_function("classifier.inference")
        >>> logits = predict(images)
    """
    _require_tensorflow("load_inference_function", "keras.saving.load_model of a .keras file")
    from keras_vit.backends.cpu.frozen_graph_saving import read_frozen_graph

    return read_frozen_graph(path, _from_file)


def _from_file(graph, *, batch_size, constants):
    _require_positive(batch_size)
    if not isinstance(constants, bool):
        raise ValueError(f"`constants` must be a bool. Received: {constants!r}")
    return InferenceFunction(graph, int(batch_size), constants)


def _require_positive(batch_size):
    try:
        is_positive = not isinstance(batch_size, bool) and operator.index(batch_size) > 0
    except TypeError:
        is_positive = False
    if not is_positive:
        raise ValueError(f"`batch_size` must be a positive int. Received: {batch_size!r}")


def _require_tensorflow(name, instead):
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{name} needs Keras on TensorFlow. Received: backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow, or use {instead}."
        )


def _image_shape(model):
    """Returns (height, width, channels)."""
    inputs, outputs = getattr(model, "inputs", None), getattr(model, "outputs", None)
    shapes = [tuple(tensor.shape) for tensor in inputs or ()]
    if len(shapes) != 1 or len(outputs) != 1 or len(shapes[0]) != 4 or None in shapes[0][1:]:
        raise ValueError(
            "Expected a functional model of images of one size, with one output. Received: "
            f"{type(model).__name__} with input shapes {shapes} and {len(outputs or ())} outputs. "
            "Build it with image_size=(height, width), or choose an output with keras.Model()."
        )
    return shapes[0][1:]
