import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_vit.training.data.preprocessing.flips_labels_and_mixup import one_hot
from keras_vit.training.data.preprocessing.operation_language import parse

GOLDEN = (0.8080947995185852, 0.9885855913162231, 0.998297393321991, 0.7898366451263428)


@pytest.mark.parametrize(
    ("label", "expected"),
    [(2, [0, 0, 1, 0]), ([3, 1], [0, 1, 0, 1]), ([1, 1], [0, 1, 0, 0]), ([], [0, 0, 0, 0])],
)
def test_one_hot_of_one_class_several_and_none(label, expected):
    np.testing.assert_array_equal(one_hot(4)(tf.constant(label, tf.int64)), expected)


@pytest.mark.parametrize("label", [-1, 4, [0, 9]])
def test_labels_out_of_range_are_nan_also_in_a_graph(label):
    for function in (one_hot(4), tf.function(one_hot(4))):
        assert np.isnan(function(tf.constant(label))).all()


def weights(p, count=2_000):
    apply = parse(f"mixup({p})")[0].apply
    one, zero = {"image": tf.ones(())}, {"image": tf.zeros(())}
    seeds = tf.data.Dataset.range(count).map(lambda k: apply(one, zero, tf.stack([3, k])))
    return np.asarray([each["image"] for each in seeds.as_numpy_iterator()])


def test_weights_follow_the_folded_beta_distribution():
    for p in (0.2, 0.5, 1.0):
        found, law = weights(p), stats.beta(p, p)
        assert found.min() >= 0.5 and found.max() <= 1
        assert stats.kstest(found, lambda x, law=law: law.cdf(x) - law.cdf(1 - x)).pvalue > 0.01
    small = weights(0.01, 500)
    assert np.isfinite(small).all() and (small > 0.999).mean() > 0.9
    assert (weights(0, 3) == 1).all()


def test_images_and_labels_share_one_weight_of_the_seed():
    batch = {"image": tf.ones((2, 1, 1, 3)), "label": tf.constant([[1.0, 0.0]] * 2)}
    partner = {"image": tf.zeros((2, 1, 1, 3)), "label": tf.constant([[0.0, 1.0]] * 2)}
    for number, weight in enumerate(GOLDEN):
        mixed = parse("mixup(0.5)")[0].apply(batch, partner, tf.constant([4, number], tf.int64))
        np.testing.assert_allclose(mixed["image"], np.full((2, 1, 1, 3), weight), rtol=1e-6)
        np.testing.assert_allclose(mixed["label"], [[weight, 1 - weight]] * 2, rtol=1e-6)
