"""Probabilities that can be believed: a temperature, and the least that is an answer."""

import numpy as np

BINS = 15


def best_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the T, from 0.01 to 100, of which softmax(logits / T) has the least cross-entropy.

    Guo et al., On calibration of modern neural networks (2017), section 4.2. `logits` are (images,
    classes), `labels` (images,) integers.
    """
    from scipy.optimize import minimize_scalar  # slow to import
    from scipy.special import log_softmax

    logits, images = logits.astype(np.float64), np.arange(len(labels))

    def loss(exponent):
        return -log_softmax(logits / 10**exponent, axis=1)[images, labels].mean()

    # It has one minimum: it is convex in 1 / T.
    found = minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-8})
    return float(10**found.x)


def calibration_error(
    confidences: np.ndarray, hits: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Returns the expected calibration error, and of each bin with images confidence and accuracy.

    The mean difference of both, weighted by images, over bins of equal width of the confidence,
    the largest probability of an image; section 2 there. Arguments are (images,).
    """
    bins = np.ceil(confidences * BINS).astype(int).clip(1, BINS)
    means = [(np.mean(bins == k), bins == k) for k in np.unique(bins)]
    rows = [(share, confidences[of].mean(), hits[of].mean()) for share, of in means]
    shares, confident, right = np.array(rows).T
    return float(np.sum(shares * np.abs(confident - right))), confident, right


def least_confidence(confidences: np.ndarray, hits: np.ndarray, accuracy: float) -> float | None:
    """Returns the least threshold at or above which that part of the answers is right, or None.

    It is in the middle between two images, and 0 where all answers are as good.
    """
    order = np.argsort(-confidences, kind="stable")
    confidences = confidences[order].astype(np.float64)
    ends = np.flatnonzero(np.diff(confidences, append=-1))
    good = np.flatnonzero(np.cumsum(hits[order])[ends] / (ends + 1) >= accuracy)
    if not len(good):
        return None
    last, following = confidences[ends[good[-1]]], [*confidences[ends[good[-1] + 1 :]], -1][0]
    return float(last + following) / 2 if following >= 0 else 0.0
