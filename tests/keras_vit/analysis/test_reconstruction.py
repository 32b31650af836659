"""Painting predicted patches."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import figures, reconstruct


@pytest.mark.parametrize(("target", "kind"), [("mean_color", 1), ("downsized", 16)])
def test_corrupted_patches_get_the_most_likely_color(make_model, images, target, kind):
    masked = keras_vit.MaskedPatchPrediction(make_model(num_classes=None), target)
    bias = np.zeros((kind, 512), "float32")
    bias[:, 511] = 1
    masked.get_layer("prediction").bias.assign(bias.ravel())
    found = reconstruct(masked, images)
    for image, places in enumerate(found.positions):
        corrupted = np.isin(np.arange(24), places).reshape(4, 6)
        pixels = corrupted.repeat(4, axis=0).repeat(4, axis=1)
        np.testing.assert_allclose(found.predicted[image][pixels], 15 / 16 * 2 - 1)
        np.testing.assert_array_equal(found.hidden[image][pixels], 0)
        for kept in (found.predicted, found.hidden):
            np.testing.assert_array_equal(kept[image][~pixels], images[image][~pixels])


def test_losses_belong_to_the_predictions(make_model, images):
    masked = keras_vit.MaskedPatchPrediction(make_model(num_classes=None))
    masked.get_layer("prediction").bias.assign(np.eye(512)[511])
    # No patch of noise is white in the mean, so that every prediction is wrong alike.
    np.testing.assert_allclose(reconstruct(masked, images).losses, np.log(511 + np.e), rtol=1e-5)


def test_pixels_are_painted_in_place(make_model, images):
    masked = keras_vit.MaskedPatchPrediction(make_model(num_classes=None), "pixels")
    patch = np.random.default_rng(0).uniform(-1, 1, (4, 4, 3)).astype("float32")
    masked.get_layer("prediction").bias.assign(patch.ravel())
    found = reconstruct(masked, images)
    row, column = divmod(int(found.positions[2, 5]), 6)
    painted = found.predicted[2, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
    np.testing.assert_allclose(painted, patch, atol=1e-6)


def test_figure_has_images_corrupted_and_predicted_below_one_another(make_model, images):
    keras.utils.set_random_seed(0)
    masked = keras_vit.MaskedPatchPrediction(make_model(num_classes=None))
    found = reconstruct(masked, images)
    figure = figures.reconstruction_figure(images, found)
    shown = [axis.images[0].get_array() for axis in figure.axes]
    np.testing.assert_allclose(shown[1], (images[1] + 1) / 2, atol=1e-6)
    np.testing.assert_allclose(shown[4], (found.hidden[1] + 1) / 2, atol=1e-6)
    np.testing.assert_allclose(shown[8], (found.predicted[2] + 1) / 2, atol=1e-6)
