"""Arguments as users write them, checked: ints of Python or of NumPy, choices, sizes."""

import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any, cast

from keras_vit.typing import ImageSize


def as_int(value: Any) -> int | None:
    """Returns an int from an int of Python or NumPy, or None for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_positive_int(name: str, value: Any) -> int:
    """Returns `value` as an int.

    Raises:
        ValueError: if it is not a positive int; `name` is the argument's name.
    """
    size = as_int(value)
    if size is None or size < 1:
        raise ValueError(f"`{name}` must be a positive int. Received: {name}={value!r}")
    return size


def as_positive(name: str, value: Any) -> float:
    """Returns `value`; raises ValueError unless it is a positive number."""
    if not (isinstance(value, Real) and float(value) > 0):
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
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
        ValueError: if it is neither.
    """
    single = as_int(image_size)
    if single is not None and single > 0:
        return single
    values = image_size if hasattr(image_size, "__iter__") else ()
    pair = tuple(as_int(size) for size in values)
    if len(pair) != 2 or any(size is None or size < 1 for size in pair):
        raise ValueError(
            "`image_size` must be a positive int or a (height, width) pair of them, in pixels. "
            f"Received: image_size={image_size!r}"
        )
    return cast(tuple[int, int], pair)
