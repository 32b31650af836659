"""Nearest neighbors by the cosine of representations, and classification by them."""

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from keras_vit.errors import imported

from ..io.progress_bar import track

logger = logging.getLogger("keras_vit")

# From so many queries and rows on an index is quicker than all cosines.
INDEXED = 50_000
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
    queries: np.ndarray, among: np.ndarray, count: int, own: Sequence[int] | np.ndarray = ()
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


def nearest_by_index(
    queries: np.ndarray, among: np.ndarray, count: int, own: Sequence[int] | np.ndarray = ()
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields what `nearest` does, of an index that finds nearly all (HNSW, Malkov and Yashunin).

    It is built with the rows at once, and may differ a little the next time. Logs the share of the
    nearest rows of 200 queries that it finds. Needs faiss, of the extra "similar".
    """
    faiss, count = imported("faiss", "similar"), min(count, len(among) - 1)
    own = np.asarray(own if len(own) else [-1] * len(queries), int)
    index = faiss.IndexHNSWFlat(among.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 64, max(128, 4 * count)
    for rows in track(np.array_split(among, len(among) // 4096 + 1), f"indexing {len(among)}"):
        index.add(rows)

    def search(those):
        cosines, rows = index.search(queries[those], count + 1)
        # The query goes, or where it is not found, the last.
        others = (rows != own[those, None]) | (rows < 0)
        others[others.all(axis=1), -1] = False
        return tuple(each[others].reshape(-1, count) for each in (rows, cosines))

    sample = np.unique(np.linspace(0, len(queries) - 1, 200).astype(int))
    exact = np.concatenate(
        [each for _, each in nearest(queries[sample], among, count, own[sample])]
    )
    share = np.mean(search(sample)[1] >= exact[:, -1:] - 1e-6)
    logger.info("The index finds %.2f %% of the %d nearest.", 100 * share, count)
    for those in np.array_split(np.arange(len(queries)), len(queries) // 4096 + 1):
        rows, cosines = search(those)
        if (rows < 0).any():
            # Many equal rows hide the others.
            yield from nearest(queries[those], among, count, own[those])
        else:
            yield rows, cosines


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
