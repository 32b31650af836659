import numpy as np
import tensorflow as tf
from scipy import stats
from training.data.preprocessing.operations import mixup

from training.data.preprocessing.operation import parse


def weights(p, count=2_000):
    dataset = tf.data.Dataset.range(count).map(lambda k: mixup.mixup_weight(p, tf.stack([3, k])))
    return np.asarray(list(dataset.as_numpy_iterator()))


def test_weights_follow_the_folded_beta_distribution():
    for p in (0.2, 0.5, 1.0):
        found = weights(p)
        assert found.min() >= 0.5
        assert found.max() <= 1
        law = stats.beta(p, p)
        assert stats.kstest(found, lambda x, law=law: law.cdf(x) - law.cdf(1 - x)).pvalue > 0.01


def test_small_parameters_give_no_nan():
    found = weights(0.01, 500)
    assert np.isfinite(found).all()
    assert (found > 0.999).mean() > 0.9


def test_images_and_labels_share_one_weight():
    (op,) = parse("mixup(0.5)")
    batch = {"image": tf.ones((2, 1, 1, 3)), "label": tf.constant([[1.0, 0.0]] * 2)}
    partner = {"image": tf.zeros((2, 1, 1, 3)), "label": tf.constant([[0.0, 1.0]] * 2)}
    seed = tf.constant([4, 2], tf.int64)
    weight = float(mixup.mixup_weight(0.5, seed))
    mixed = op.apply(batch, partner, seed)
    np.testing.assert_allclose(mixed["image"], np.full((2, 1, 1, 3), weight))
    np.testing.assert_allclose(mixed["label"], [[weight, 1 - weight]] * 2, rtol=1e-6)
