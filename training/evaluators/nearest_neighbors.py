"""Nearest neighbors by the cosine of representations, exactly, and classification by them."""

from collections.abc import Iterator, Sequence

import numpy as np

# Similarities in memory at once, 128 MiB of float32.
_AT_ONCE = 2**25
# DINO evaluates with these (Caron et al., 2021).
NEIGHBORS, TEMPERATURE = 20, 0.07


def directions(features: np.ndarray) -> np.ndarray:
    """Returns rows of length 1, (rows, dimensions) float32; a row of zeros stays.

    Raises ValueError for infinite or undefined values.
    """
    features = np.asarray(features, np.float32)
    if not np.isfinite(features).all():
        raise ValueError("Expected finite features. Received: infinite or undefined values")
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


def nearest(
    queries: np.ndarray, among: np.ndarray, count: int, own: Sequence[int] = ()
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the nearest rows of `among` and their cosines, of some queries at a time, in order.

    Args:
        queries: (queries, dimensions) float32, of `directions`.
        among: (rows, dimensions) float32, likewise.
        count: neighbors of each query; of fewer rows all.
        own: the row that each query is, which is not its neighbor; -1 of none. () is of no query.

    Yields:
        Pairs of (some queries, count): numbers of rows, the nearest first and of equally near ones
        the first, and float32 cosines.
    """
    own = np.asarray(own, int)
    count = min(count, len(among) - bool((own >= 0).any()))
    step = max(1, _AT_ONCE // max(len(among), 1))
    for start in range(0, len(queries) if count > 0 else 0, step):
        cosines = queries[start : start + step] @ among.T
        here = own[start : start + step]
        places = np.flatnonzero(here >= 0)
        cosines[places, here[places]] = -np.inf
        found = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        found.sort(axis=1)
        values = np.take_along_axis(cosines, found, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        yield np.take_along_axis(found, order, axis=1), np.take_along_axis(values, order, axis=1)


def knn_accuracy(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    num_classes: int,
    neighbors: int = NEIGHBORS,
    temperature: float = TEMPERATURE,
) -> float:
    """Returns the share of `test` whose label its nearest neighbors in `train` vote for.

    A neighbor's vote is exp(cosine / temperature). Both are features, (images, dimensions), and
    labels, (images,) integers below `num_classes`.
    """
    among, right, done = directions(train[0]), 0, 0
    for found, cosines in nearest(directions(test[0]), among, neighbors):
        # The largest is subtracted: all votes of an image shrink alike.
        weights = np.exp((cosines - cosines[:, :1]) / temperature)
        votes = np.zeros((len(found), num_classes))
        np.add.at(votes, (np.arange(len(found))[:, None], train[1][found]), weights)
        right += int((votes.argmax(axis=1) == test[1][done : done + len(found)]).sum())
        done += len(found)
    return right / len(test[1])
