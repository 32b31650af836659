"""Losses against closed forms."""

import math

import keras
import numpy as np
import pytest

from keras_vit.training.recipes.classification_losses import build_loss


@pytest.mark.parametrize(
    "name, bias, classes, expected, dtype",
    [
        ("sigmoid", -10.0, 21_843, 10.991648, "float32"),
        ("sigmoid", -6.9, 1000, 7.907278, "float32"),
        ("sigmoid", 0.0, 1000, 693.147181, "float32"),
        # Of logits in half precision too, losses are summed in float32.
        ("softmax", 0.0, 1000, 6.907755, "float16"),
    ],
)
def test_initial_loss_of_a_zero_head(name, bias, classes, expected, dtype):
    labels = np.eye(classes, dtype="float32")[[0, classes - 1]]
    logits = np.full((2, classes), bias, dtype)
    assert float(build_loss(name)(labels, logits)) == pytest.approx(expected, rel=5e-6)


def test_soft_labels():
    labels = np.array([[0.25, 0.75]], "float32")
    logits = np.array([[0.0, math.log(3.0)]], "float32")
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert float(build_loss("softmax")(labels, logits)) == pytest.approx(entropy, rel=1e-6)
    sigmoid = -(math.log(0.5) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert float(build_loss("sigmoid")(labels, logits)) == pytest.approx(sigmoid, rel=1e-6)
    # Large logits stay finite.
    labels, logits = np.array([[1.0, 0.0]], "float32"), np.array([[-1e4, 1e4]], "float32")
    assert float(build_loss("sigmoid")(labels, logits)) == pytest.approx(2e4)
    assert float(build_loss("softmax")(labels, logits)) == pytest.approx(2e4)


LABELS = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.25, 0.0, 0.75]], "float32")
LOGITS = np.array([[0.5, -1.0, 2.0, 0.0], [1.0, 0.0, -0.5, 3.0]], "float32")


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_is_weighted_by_the_mean_of_the_labels_of_its_image(name, smoothing):
    # One label, soft ones, some of a sum below one, two labels, and none.
    labels = np.array([*LABELS, [0.0, 0.1, 0.3, 0.0], [1.0, 0, 0, 1], [0, 0, 0, 0]], "float32")
    logits = LOGITS[[0, 1, 0, 1, 0]]
    weighted = build_loss(name, smoothing, (2.0, 4.0, 1.0, 0.5)).call(labels, logits)
    means = [2.0, 0.25 * 4.0 + 0.75 * 0.5, (0.1 * 4.0 + 0.3 * 1.0) / 0.4, (2.0 + 0.5) / 2, 0.0]
    expected = np.array(build_loss(name, smoothing).call(labels, logits)) * means
    np.testing.assert_allclose(weighted, expected, rtol=1e-6)
    smoothed = build_loss(name).call((1 - smoothing) * LABELS + smoothing / 4, LOGITS)
    found = build_loss(name, smoothing).call(LABELS, LOGITS)
    np.testing.assert_allclose(found, smoothed, rtol=1e-6)


def test_a_configured_loss_is_saved_with_its_settings():
    loss = build_loss("softmax", 0.1, (1.0, 2.0))
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
    assert (copy.label_smoothing, copy.class_weights) == (0.1, (1.0, 2.0))


def test_unknown_loss():
    with pytest.raises(ValueError, match="softmax, sigmoid"):
        build_loss("hinge")
