"""Arguments as users write them, checked: ints of Python or of NumPy, choices, sizes."""

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any, cast

from keras_vit.typing import ImageSize

# The longest side of a JPEG is shorter.
IMAGE_SIZE_LIMIT = 2**16
# Keras makes every layer before anything can be seen to be too large.
LAYERS_LIMIT = 2**12


def as_int(value: Any) -> int | None:
    """Returns an int from an int of Python or NumPy, or None for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_positive_int(name: str, value: Any, greatest: int = 2**31 - 1) -> int:
    """Returns `value` as an int.

    Raises:
        ValueError: if it is not an int from 1 to `greatest`; `name` is the argument's name.
    """
    size = as_int(value)
    if size is None or not 1 <= size <= greatest:
        raise ValueError(
            f"`{name}` must be a positive int, at most {greatest}. Received: {name}={value!r}"
        )
    return size


def as_units_per_stage(num_layers: Sequence[Any]) -> tuple[int, ...]:
    """Returns the residual units of each stage; raises ValueError unless all are positive ints."""
    return tuple(as_positive_int("num_layers", units, LAYERS_LIMIT) for units in num_layers)


def as_positive(name: str, value: Any) -> float:
    """Returns `value`; raises ValueError unless it is a positive, finite number."""
    if not (isinstance(value, Real) and 0 < float(value) < math.inf):
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
    return cast(float, value)


def as_rate(name: str, value: Any) -> float:
    """Returns `value`; raises ValueError unless it is a number in [0, 1)."""
    if not (isinstance(value, Real) and 0 <= float(value) < 1):
        raise ValueError(f"`{name}` must lie in [0, 1). Received: {name}={value!r}")
    return cast(float, value)


def as_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns `value`; raises ValueError unless it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}")
    return value


def as_num_classes(num_classes: Any) -> int | None:
    """Returns `num_classes` as an int or None; raises ValueError for anything else."""
    size = as_int(num_classes)
    if num_classes is not None and (size is None or size < 1):
        raise ValueError(
            "`num_classes` must be a positive int, or None for a model without head. "
            f"Received: num_classes={num_classes!r}"
        )
    return size


def as_height_width(image_size: Any) -> tuple[int, int]:
    """Returns (height, width) in pixels from an int or a pair.

    Raises:
        ValueError: if it is neither a positive int nor a pair of them.
    """
    size = as_image_size(image_size)
    return (size, size) if isinstance(size, int) else size


def as_image_size(image_size: Any) -> ImageSize:
    """Returns a positive int, or a (height, width) pair of them, as a tuple.

    Raises:
        ValueError: if it is neither, or a side is not below `IMAGE_SIZE_LIMIT`.
    """
    single = as_int(image_size)
    if single is not None and 0 < single < IMAGE_SIZE_LIMIT:
        return single
    values = image_size if hasattr(image_size, "__iter__") else ()
    pair = tuple(as_int(size) for size in values)
    if len(pair) != 2 or any(size is None or not 0 < size < IMAGE_SIZE_LIMIT for size in pair):
        raise ValueError(
            "`image_size` must be a positive int or a (height, width) pair of them, in pixels, "
            f"below {IMAGE_SIZE_LIMIT}. Received: image_size={image_size!r}"
        )
    return cast(tuple[int, int], pair)
