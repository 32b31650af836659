"""Matrices that resample an axis of an array: new values = matrix @ old values."""

import numpy as np


def _linear(positions, source, width=1.0):
    """Returns the weights of the samples at `positions`; repeats the ends beyond them."""
    weights = np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(source)) / width)
    return weights / weights.sum(1, keepdims=True)


def corner_weights(source: int, target: int) -> np.ndarray:
    """Returns the (target, source) float64 matrix of linear interpolation with aligned corners.

    Sample i of `target` lies at i (source - 1) / (target - 1).
    """
    return _linear(np.arange(target) * ((source - 1) / max(target - 1, 1)), source)


def half_pixel_weights(source: int, target: int, antialias: bool = False) -> np.ndarray:
    """Returns the (target, source) float64 matrix of linear interpolation between pixel centers.

    Sample i of `target` lies at (i + 1/2) source / target - 1/2. With `antialias`, shrinking
    averages all samples that a new one stands for.
    """
    scale = source / target
    positions = (np.arange(target) + 0.5) * scale - 0.5
    return _linear(positions, source, max(scale, 1.0) if antialias else 1.0)


def area_weights(source: int, target: int) -> np.ndarray:
    """Returns the (target, source) float64 matrix of averages: the part of each old in each new."""
    scale = source / target
    start, sample = np.arange(target)[:, None] * scale, np.arange(source)
    overlap = np.minimum(start + scale, sample + 1) - np.maximum(start, sample)
    return overlap.clip(0) / scale
