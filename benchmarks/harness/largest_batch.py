"""The largest batch whose program fits a chip, found with few compilations."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_REFUSAL = re.compile(r"out of memory: used ([\d.]+)([KMGT]) of")


def largest_batch(
    compile_for: Callable[[int], Mapping[str, Any]], start: int, step: int, memory: float
) -> tuple[int, Mapping[str, Any]]:
    """Returns the largest multiple of `step` that fits, 0 if none does, and what was found of it.

    What a program keeps grows nearly linearly with its batch, so a line through two compilations
    says where the memory ends. The answer is certain: it was compiled, and the compiler refused
    `step` images more.

    Args:
        compile_for: from a number of images to `arguments` and `temporaries` in bytes, or the
            `error` of a compiler that says how much it used.
        start: about how many images are compiled first.
        step: images between two sizes.
        memory: of the chip, in bytes.

    Raises:
        RuntimeError: if the compiler fails for another reason than memory.
    """
    largest, refused = 0, math.inf
    of_largest: Mapping[str, Any] = {}
    used, bracketed = {0: 0.0}, False
    images = max(start // step, 1) * step
    while refused - largest > step:
        found = compile_for(images)
        used[images] = _used(found)
        if "error" in found:
            refused = images
        else:
            largest, of_largest = images, found
        guess = _guess(used, refused, step, memory)
        if bracketed:
            # Where there is little memory the compiler saves it by itself, and no line holds.
            guess = (largest + refused) // 2 // step * step
        bracketed = 0 < largest < refused < math.inf
        images = int(min(max(guess, largest + step), refused - step))
    return largest, of_largest


def _used(found):
    if "error" not in found:
        return found["arguments"] + found["temporaries"]
    if not (refusal := _REFUSAL.search(found["error"])):
        raise RuntimeError(f"Expected a program or a lack of memory. Received: {found['error']}")
    return float(refusal[1]) * _UNITS[refusal[2]]


def _guess(used, refused, step, memory):
    """Returns where the line through the two largest sizes up to the refused one meets memory."""
    smaller, images = sorted(size for size in used if size <= refused)[-2:]
    slope = (used[images] - used[smaller]) / (images - smaller)
    free = memory - used[images]
    return (images + min(free / slope, images)) // step * step if slope > 0 else 2 * images
