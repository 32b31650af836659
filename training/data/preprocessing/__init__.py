"""Preprocessing. A text may name the operations of the files that are imported here."""

from keras_vit.training.data.preprocessing import (  # noqa: F401
    decoding,
    pixels_and_labels,
    randaugment,
    resizing_and_cropping,
)
