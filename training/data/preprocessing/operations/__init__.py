"""The operations, a file for each kind. A text may name those of the files that are listed here."""

from training.data.preprocessing.operations import (  # noqa: F401
    augreg,
    bit_hyperrule,
    cropping,
    decoding,
    flips_and_shifts,
    labels,
    mixup,
    pixel_values,
    randaugment,
    resizing,
)
