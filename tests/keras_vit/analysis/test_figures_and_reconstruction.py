import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import figures, reconstruct
from tests.keras_vit.small import make_images, make_wide

IMAGES = make_images(3, 16, 24)


def test_a_uniform_map_is_yellow_and_no_patch_sees_beyond_the_last_pixel():
    shown = figures.highlight(IMAGES, np.ones((3, 4, 6)), 4)
    gray = (IMAGES + 1) / 2 @ np.array([0.2126, 0.7152, 0.0722])
    expected = 0.4 * gray[..., None] + 0.6 * np.array([253, 231, 37]) / 255  # yellow
    np.testing.assert_allclose(shown, expected, atol=2e-3)
    (seen,) = figures.over_images(np.float32([[[0, 1]]]), 16, (16, 47))
    assert seen[:, 24:32].min() > 0.8 and seen[:, :8].max() < 0.1 and not seen[:, 32:].any()
    # The grid of a hybrid may end beyond the image.
    np.testing.assert_allclose(figures.over_images(np.ones((1, 2, 2)), 16, (20, 31)), 1, atol=1e-6)


@pytest.mark.parametrize("blur", [0, 4])
def test_the_attended_corner_is_bright_and_the_rest_is_not_black(blur):
    maps = np.eye(1, 24, 5).reshape(1, 4, 6)
    assert figures.highlight(np.ones((1, 16, 24, 3)), maps, 4, blur)[0].min() > 0.4
    shown = figures.highlight(-np.ones((1, 16, 24, 3)), maps, 4, blur)[0, ..., 1]
    np.testing.assert_allclose(shown.max(), 0.6 * 231 / 255, atol=2e-3)
    assert np.unravel_index(shown.argmax(), shown.shape)[0] < 8
    assert shown[:8, 12:].mean() > 4 * shown[8:, :12].mean()


def test_figures_have_images_beside_their_maps_and_one_tile_per_patch_on_one_scale():
    figure = figures.rollout_figure(IMAGES, np.ones((3, 4, 6)), 4, titles=["a", "b", "c"])
    shown = [axis.images[0].get_array() for axis in figure.axes]
    assert len(shown) == 6
    np.testing.assert_allclose(shown[2], (IMAGES[1] + 1) / 2, atol=1e-6)
    assert [axis.get_title() for axis in figure.axes[::2]] == ["a", "b", "c"]
    figure = figures.rollout_figure(IMAGES[..., :1], np.ones((3, 4, 6)), 4)
    gray = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(gray, np.repeat(shown[0][..., :1], 3, axis=-1))
    similarity = np.random.default_rng(0).uniform(-1, 1, (2, 3, 2, 3))
    figure = figures.position_similarity_figure(similarity)
    tiles = [axis.images[0] for axis in figure.axes if axis.images]
    np.testing.assert_array_equal(tiles[5].get_array(), similarity[1, 2])
    assert {tile.get_clim() for tile in tiles} == {(-1, 1)}


def make_masked(target):
    return keras_vit.MaskedPatchPrediction(make_wide(num_classes=None), target)


@pytest.mark.parametrize(("target", "kind"), [("mean_color", 1), ("downsized", 16)])
def test_corrupted_patches_get_the_most_likely_color(target, kind):
    masked = make_masked(target)
    masked.get_layer("prediction").bias.assign(np.tile(np.eye(512)[511], kind))
    with pytest.raises(ValueError, match=r"Expected images in \[-1, 1\]"):
        reconstruct(masked, 127.5 * IMAGES + 127.5)
    found = reconstruct(masked, IMAGES)
    for image, places in enumerate(found.positions):
        corrupted = np.isin(np.arange(24), places).reshape(4, 6)
        pixels = corrupted.repeat(4, axis=0).repeat(4, axis=1)
        np.testing.assert_allclose(found.predicted[image][pixels], 15 / 16 * 2 - 1)
        np.testing.assert_array_equal(found.hidden[image][pixels], 0)
        for kept in (found.predicted, found.hidden):
            np.testing.assert_array_equal(kept[image][~pixels], IMAGES[image][~pixels])
    # No patch of noise is white in the mean, so that every prediction is wrong alike.
    if target == "mean_color":
        np.testing.assert_allclose(found.losses, np.log(511 + np.e), rtol=1e-5)


def test_pixels_are_painted_in_place_and_shown():
    masked = make_masked("pixels")
    patch = np.random.default_rng(0).uniform(-1, 1, (4, 4, 3)).astype("float32")
    masked.get_layer("prediction").bias.assign(patch.ravel())
    found = reconstruct(masked, IMAGES)
    row, column = divmod(int(found.positions[2, 5]), 6)
    painted = found.predicted[2, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
    np.testing.assert_allclose(painted, patch, atol=1e-6)
    # Images, corrupted and predicted below one another.
    figure = figures.reconstruction_figure(IMAGES, found)
    shown = [axis.images[0].get_array() for axis in figure.axes]
    for number, expected in ((1, IMAGES[1]), (4, found.hidden[1]), (8, found.predicted[2])):
        np.testing.assert_allclose(shown[number], (expected + 1) / 2, atol=1e-6)
