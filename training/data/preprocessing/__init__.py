"""Preprocessing. A text may name the operations of the files that are imported here."""

from . import (  # noqa: F401
    decoding,
    flips_labels_and_mixup,
    randaugment,
    resizing_and_cropping,
)
