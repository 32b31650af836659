"""Preprocessing. A text may name the operations of the files that are imported here."""

from . import decoding, geometry, mixup, randaugment, value_range  # noqa: F401
