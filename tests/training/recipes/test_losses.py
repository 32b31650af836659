"""Losses against closed forms."""

import math

import keras
import numpy as np
import pytest

from keras_vit.training.recipes.classification_losses import build_loss


def test_initial_losses_of_a_zero_head_and_those_of_soft_labels():
    for name, bias, classes, expected, dtype in (
        ("sigmoid", -10.0, 21_843, 10.991648, "float32"),
        ("sigmoid", -6.9, 1000, 7.907278, "float32"),
        ("sigmoid", 0.0, 1000, 693.147181, "float32"),
        # Of logits in half precision too, losses are summed in float32.
        ("softmax", 0.0, 1000, 6.907755, "float16"),
    ):
        labels = np.eye(classes, dtype="float32")[[0, classes - 1]]
        logits = np.full((2, classes), bias, dtype)
        assert float(build_loss(name)(labels, logits)) == pytest.approx(expected, rel=5e-6)
    # Soft labels.
    labels = np.array([[0.25, 0.75]], "float32")
    logits = np.array([[0.0, math.log(3.0)]], "float32")
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    for name, expected in (("softmax", entropy), ("sigmoid", entropy - math.log(0.5))):
        loss = build_loss(name)
        assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6)
        # Large logits stay finite.
        large = loss(np.array([[1, 0]], "float32"), np.array([[-1e4, 1e4]], "float32"))
        assert float(large) == pytest.approx(2e4)


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_is_weighted_by_the_mean_of_the_labels_of_its_image(name, smoothing):
    # One label, soft ones, some of a sum below one, two labels, and none.
    soft = [[0, 0.25, 0, 0.75], [0, 0.1, 0.3, 0]]
    labels = np.array([[1, 0, 0, 0], *soft, [1, 0, 0, 1], [0, 0, 0, 0]], "float32")
    logits = np.array([[0.5, -1.0, 2.0, 0.0], [1.0, 0.0, -0.5, 3.0]], "float32")[[0, 1, 0, 1, 0]]
    weighted = build_loss(name, smoothing, (2.0, 4.0, 1.0, 0.5)).call(labels, logits)
    means = [2.0, 0.25 * 4.0 + 0.75 * 0.5, (0.1 * 4.0 + 0.3 * 1.0) / 0.4, (2.0 + 0.5) / 2, 0.0]
    expected = np.array(build_loss(name, smoothing).call(labels, logits)) * means
    np.testing.assert_allclose(weighted, expected, rtol=1e-6)
    smoothed = build_loss(name).call((1 - smoothing) * labels[:2] + smoothing / 4, logits[:2])
    found = build_loss(name, smoothing).call(labels[:2], logits[:2])
    np.testing.assert_allclose(found, smoothed, rtol=1e-6)


def test_a_configured_loss_is_saved_with_its_settings():
    loss = build_loss("softmax", 0.1, (1.0, 2.0))
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
    assert (copy.label_smoothing, copy.class_weights) == (0.1, (1.0, 2.0))
    with pytest.raises(ValueError, match="softmax, sigmoid"):
        build_loss("hinge")
