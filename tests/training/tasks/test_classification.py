import numpy as np

from keras_vit.losses import build_loss
from keras_vit.training.tasks.classification.evaluation import counted_sums


def test_rows_that_are_not_numbers_are_no_hits_and_padding_counts_nothing():
    logits = np.array([[np.nan, np.nan], [2, 1], [np.nan, 0]], "float32")
    labels = np.array([[1, 0], [1, 0], [1, 0]], "float32")
    loss = build_loss("softmax")
    sums = np.asarray(counted_sums(logits, labels, np.array([0, 1, 0], "float32"), loss))
    np.testing.assert_allclose(sums, [np.log1p(np.exp(-1)), 1, 1, 1], rtol=1e-5)
    sums = np.asarray(counted_sums(logits, labels, np.ones(3, "float32"), loss))
    assert np.isnan(sums[0])
    np.testing.assert_array_equal(sums[1:], [1, 1, 3])


def test_a_hit_is_a_label_however_little_of_it():
    logits = np.tile(np.array([3, 2, 1], np.float32), (2, 1))
    parts = np.array([[0.4, 0.3, 0.3], [0.0, 0.4, 0.4]], np.float32)
    sums = counted_sums(logits, parts, np.ones(2, np.float32), build_loss("softmax"))
    np.testing.assert_array_equal(np.asarray(sums)[1:], [1, 2, 2])
