"""Inference on CPUs."""

import math
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_vit.models.argument_checks import as_int
from keras_vit.typing import Tensor

_LIMIT = 2**31


def inference_function(
    model: keras.Model, batch_size: int = 8, constants: bool | None = None
) -> Callable[[Tensor], np.ndarray]:
    """Returns a function from images to a model's outputs, the fastest way on a CPU.

    It computes in the kernels of TensorFlow's oneDNN: layer normalization becomes one of
    them, queries, keys and values one matrix product. Nothing is approximated: results
    differ from the model's by rounding. It keeps the weights that the model has now.

    Args:
        model: a functional Keras model of images, such as `keras_vit.VisionTransformer`, of
            any precision policy, on Keras's TensorFlow backend.
        batch_size: int, the images computed at once. More images than that are computed
            in batches, fewer are padded.
        constants: bool, whether the weights become constants of the graph. oneDNN reorders
            constants once instead of in every call. That pays in bfloat16, its default, at
            the price of a slow first call and of several times their memory during it.
            None: as `model.dtype_policy` says.

    Returns:
        A function that takes images, (n, height, width, channels) in the range that the
        model takes, and returns its outputs, a float32 NumPy array (n, ...).

    Raises:
        ValueError: if Keras runs on another backend, `batch_size` is not a positive int, the
            model is not one of images of one size with one output, or constants exceed 2 GiB,
            the limit of a graph.

    Examples:
        >>> predict = keras_vit.inference_function(model)
        >>> logits = predict(images)
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "inference_function needs Keras on TensorFlow. Received: backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow, or use model.predict()."
        )
    if isinstance(batch_size, bool) or as_int(batch_size) is None or batch_size < 1:
        raise ValueError(f"`batch_size` must be a positive int. Received: {batch_size!r}")
    if constants is None:
        constants = keras.dtype_policies.get(model.dtype_policy).compute_dtype == "bfloat16"
    size = sum(v.value.dtype.size * math.prod(v.shape) for v in model.weights)
    if constants and size >= _LIMIT:
        raise ValueError(
            f"Expected constants of less than 2 GiB. Received: weights of {size / 2**30:.1f} GiB. "
            "Pass constants=False, or build the model in bfloat16."
        )
    shape = _image_shape(model)
    # TensorFlow is imported only where it is the backend.
    from keras_vit.backends.tensorflow.onednn import function_of

    function = function_of(model, (batch_size, *shape), constants)

    def infer(images):
        images = ops.convert_to_tensor(images, "float32")
        if images.shape[1:] != shape or not len(images):
            raise ValueError(
                f"Expected images of shape (n, {', '.join(map(str, shape))}), at least one. "
                f"Received: {tuple(images.shape)}"
            )
        outputs = []
        for start in range(0, len(images), batch_size):
            batch = images if len(images) == batch_size else images[start : start + batch_size]
            missing = batch_size - len(batch)
            if missing:
                batch = ops.pad(batch, [(0, missing), (0, 0), (0, 0), (0, 0)])
            outputs.append(function(batch).numpy()[: batch_size - missing])
        return np.concatenate(outputs)

    return infer


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
