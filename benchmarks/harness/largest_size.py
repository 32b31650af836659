"""The search for the largest batch that fits."""

import math
from collections.abc import Callable


def largest_size(
    fits: Callable[[int], bool],
    start: int = 1,
    step: int = 1,
    most: float = math.inf,
    tolerance: float = 0.0,
) -> tuple[int, float]:
    """Returns the largest multiple of `step` that fits, 0 if none does, and the least that did not.

    From `start` on each stride is twice the one before, until the answer lies between two sizes;
    then the gap is halved.

    Args:
        fits: whether a size does.
        start: about the first size that is tried.
        step: least difference between two sizes.
        most: largest size that is tried; where it fits, the second result is infinite.
        tolerance: the gap between the two results, as a part of the first, that ends the search.
    """
    largest, refused, stride = 0, math.inf, step
    size = max(start // step, 1) * step
    while size <= most and refused - largest > max(step, tolerance * largest):
        if fits(size):
            largest = size
        else:
            refused = size
        if 0 < largest < refused < math.inf:
            size = int(largest + refused) // 2 // step * step
        else:
            size = max(size + (stride if largest else -stride), step)
            stride *= 2
    return largest, refused
