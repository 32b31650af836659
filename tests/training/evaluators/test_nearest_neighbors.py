import re

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from keras_vit.training.evaluators import nearest_neighbors
from keras_vit.training.evaluators.nearest_neighbors import (
    directions,
    knn_accuracy,
    nearest,
    nearest_by_index,
)

RNG = np.random.default_rng(0)
X, QUERIES = RNG.standard_normal((60, 9)), RNG.standard_normal((25, 9))
Y, LABELS = RNG.integers(0, 4, 60), RNG.integers(0, 4, 25)


def joined(*arguments, by=nearest):
    return [np.concatenate(each) for each in zip(*by(*arguments), strict=True)]


@pytest.mark.parametrize("at_once", [2**25, 200])
def test_neighbors_and_votes_are_those_of_scikit_learn(at_once, monkeypatch):
    monkeypatch.setattr(nearest_neighbors, "_AT_ONCE", at_once)
    rows, cosines = joined(directions(QUERIES), directions(X), 7)
    distances, expected = NearestNeighbors(metric="cosine").fit(X).kneighbors(QUERIES, 7)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(cosines, 1 - distances, atol=1e-6)
    rows, _ = joined(directions(X), directions(X), 3, range(60))
    np.testing.assert_array_equal(
        rows, NearestNeighbors(metric="cosine").fit(X).kneighbors(n_neighbors=3)[1]
    )
    # scikit-learn's weights see distances; exp((1 - d) / t) is proportional to exp(-d / t).
    judge = KNeighborsClassifier(20, metric="cosine", weights=lambda far: np.exp(-far / 0.07))
    share = judge.fit(X, Y).score(QUERIES, LABELS)
    assert knn_accuracy((X, Y), (QUERIES, LABELS), 4) == pytest.approx(share)
    assert 0 < share < 1


def test_an_index_finds_nearly_all_neighbors_and_no_query_itself(caplog):
    pytest.importorskip("faiss", reason="make test-runtimes installs it")
    rng = np.random.default_rng(0)
    x = directions(rng.standard_normal((50, 16))[rng.integers(0, 50, 5000)])
    x = directions(x + 0.1 * rng.standard_normal(x.shape))
    x[:300] = x[0]  # more equal ones than neighbors
    with caplog.at_level("INFO", "keras_vit"):
        found, cosines = joined(x, x, 7, range(5000), by=nearest_by_index)
    _, exact = joined(x, x, 7, range(5000))
    assert found.shape == (5000, 7) and not (found == np.arange(5000)[:, None]).any()
    np.testing.assert_allclose(cosines, np.einsum("ij,ikj->ik", x, x[found]), atol=1e-6)
    assert np.mean(cosines >= exact[:, -1:] - 1e-6) > 0.99
    assert float(re.search(r"finds (\S+) % of the 7 nearest", caplog.text)[1]) > 98
    # Queries that are no rows keep the first.
    found, _ = joined(x[300:400], x, 1, by=nearest_by_index)
    assert np.mean(found[:, 0] == np.arange(300, 400)) > 0.98


def test_equally_near_ones_stand_in_order_and_few_rows_are_all():
    same = directions(np.ones((4, 2)))
    rows, cosines = joined(same, same, 9, range(4))
    assert rows.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    np.testing.assert_allclose(cosines, 1, atol=1e-6)
    assert not directions(np.zeros((1, 3))).any() and not list(nearest(same[:1], same[:1], 5, [0]))
    with pytest.raises(ValueError, match="finite features"):
        directions(np.array([[np.inf]]))
