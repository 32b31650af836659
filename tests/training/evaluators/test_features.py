"""Features are computed for every image, once."""

import numpy as np
import pytest

from training.evaluators import features


def test_extract_keeps_every_image_and_no_padding(padded_batches):
    images = np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1)
    labels = np.eye(3, dtype=np.float32)[[2, 0, 1, 1, 0]]
    x, y = features.extract(lambda x: x[:, 0, 0] * [1, 10], padded_batches(images, labels, 2))
    np.testing.assert_array_equal(x, [[0, 0], [1, 10], [2, 20], [3, 30], [4, 40]])
    np.testing.assert_array_equal(y, [2, 0, 1, 1, 0])


def test_extract_wants_one_label_and_pooled_features(padded_batches):
    images = np.zeros((2, 1, 1, 1), np.float32)
    with pytest.raises(ValueError, match="exactly one label"):
        features.extract(lambda x: x[:, 0, 0], padded_batches(images, np.ones((2, 3)), 2))
    with pytest.raises(ValueError, match=r"shape \(batch, dimensions\)"):
        features.extract(lambda x: x, padded_batches(images, np.eye(2), 2))


def test_cached_computes_once_per_key(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return np.full((2, 3), len(calls), np.float32), np.arange(2, dtype=np.int32)

    for _ in range(2):
        x, y = features.cached({"split": "train"}, compute, tmp_path)
        np.testing.assert_array_equal(x, np.ones((2, 3)))
        np.testing.assert_array_equal(y, [0, 1])
    x, _ = features.cached({"split": "test"}, compute, tmp_path)
    np.testing.assert_array_equal(x, np.full((2, 3), 2))
    assert len(calls) == len(list(tmp_path.iterdir())) == 2


def test_a_damaged_file_is_computed_again(tmp_path):
    def compute():
        return np.ones((2, 3), np.float32), np.zeros(2, np.int32)

    features.cached({}, compute, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    x, _ = features.cached({}, compute, tmp_path)
    np.testing.assert_array_equal(x, np.ones((2, 3)))
    with np.load(path) as file:
        assert file["features"].shape == (2, 3)


def test_an_interrupted_computation_leaves_no_file(tmp_path):
    def compute():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features.cached({}, compute, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
