"""The words of the type hints."""

from typing import Any

# An eager, symbolic or traced tensor of the backend, or what converts to one.
Tensor = Any

# Pixels: of a square, or (height, width).
ImageSize = int | tuple[int, int]
