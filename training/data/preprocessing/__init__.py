"""Preprocessing. A text may name the operations of the files that are imported here."""

from . import (  # noqa: F401
    decoding,
    geometry,
    mixup,
    pixel_values,
    randaugment,
)
