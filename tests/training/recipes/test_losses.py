import math

import keras
import numpy as np
import pytest

from training.recipes.losses import build_loss


@pytest.mark.parametrize(
    "name, bias, classes, expected",
    [
        ("sigmoid", -10.0, 21_843, 10.991648),
        ("sigmoid", -6.9, 1000, 7.907278),
        ("sigmoid", 0.0, 1000, 693.147181),
        ("softmax", 0.0, 1000, 6.907755),
    ],
)
def test_initial_loss_of_a_zero_head(name, bias, classes, expected):
    labels = np.eye(classes, dtype="float32")[[0, classes - 1]]
    logits = np.full((2, classes), bias, "float32")
    assert float(build_loss(name)(labels, logits)) == pytest.approx(expected, rel=5e-6)


def test_soft_labels():
    labels = np.array([[0.25, 0.75]], "float32")
    logits = np.array([[0.0, math.log(3.0)]], "float32")
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert float(build_loss("softmax")(labels, logits)) == pytest.approx(entropy, rel=1e-6)
    sigmoid = -(math.log(0.5) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert float(build_loss("sigmoid")(labels, logits)) == pytest.approx(sigmoid, rel=1e-6)


def test_large_logits_stay_finite():
    labels, logits = np.array([[1.0, 0.0]], "float32"), np.array([[-1e4, 1e4]], "float32")
    assert float(build_loss("sigmoid")(labels, logits)) == pytest.approx(2e4)
    assert float(build_loss("softmax")(labels, logits)) == pytest.approx(2e4)


def test_half_precision_logits_are_summed_in_float32():
    labels = np.eye(1000, dtype="float32")[:1]
    loss = build_loss("softmax")(labels, np.zeros((1, 1000), "float16"))
    assert float(loss) == pytest.approx(math.log(1000), rel=1e-6)


LABELS = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.25, 0.0, 0.75]], "float32")
LOGITS = np.array([[0.5, -1.0, 2.0, 0.0], [1.0, 0.0, -0.5, 3.0]], "float32")


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_label_smoothing_spreads_a_part_of_the_labels(name):
    smoothed = 0.9 * LABELS + 0.1 / 4
    expected = build_loss(name).call(smoothed, LOGITS)
    np.testing.assert_allclose(build_loss(name, 0.1).call(LABELS, LOGITS), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_a_loss_is_weighted_by_the_class_of_its_image(name):
    weighted = build_loss(name, class_weights=(2.0, 4.0, 1.0, 0.5)).call(LABELS, LOGITS)
    # Of the second image 0.25 * 4 + 0.75 * 0.5.
    expected = np.array(build_loss(name).call(LABELS, LOGITS)) * [2.0, 1.375]
    np.testing.assert_allclose(weighted, expected, rtol=1e-6)


def test_a_configured_loss_is_saved_with_its_settings():
    loss = build_loss("softmax", 0.1, (1.0, 2.0))
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
    assert (copy.label_smoothing, copy.class_weights) == (0.1, (1.0, 2.0))


def test_unknown_loss():
    with pytest.raises(ValueError, match="softmax, sigmoid"):
        build_loss("hinge")
