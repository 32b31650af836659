"""Preprocessing. A text may name the operations of the files that are imported here."""

from training.data.preprocessing import (  # noqa: F401
    batches_and_labels,
    decoding,
    pixels,
    randaugment,
    resizing_and_cropping,
)
