"""Figures: what is computed for them, and that they show it."""

import numpy as np
import pytest

from keras_vit.analysis import figures


def test_a_uniform_map_is_yellow_over_the_gray_image(images):
    shown = figures.highlight(images, np.ones((3, 4, 6)))
    gray = (images + 1) / 2 @ np.array([0.2126, 0.7152, 0.0722])
    yellow = np.array([253, 231, 37]) / 255
    np.testing.assert_allclose(shown, 0.4 * gray[..., None] + 0.6 * yellow, atol=2e-3)


@pytest.mark.parametrize("blur", [0, 4])
def test_the_attended_corner_is_bright_and_the_rest_is_not_black(blur):
    maps = np.zeros((1, 4, 6))
    maps[0, 0, 5] = 1
    white = figures.highlight(np.ones((1, 16, 24, 3)), maps, blur)[0]
    assert white.min() > 0.4
    shown = figures.highlight(-np.ones((1, 16, 24, 3)), maps, blur)[0, ..., 1]
    np.testing.assert_allclose(shown.max(), 0.6 * 231 / 255, atol=2e-3)
    assert np.unravel_index(shown.argmax(), shown.shape)[0] < 8
    assert shown[:8, 12:].mean() > 4 * shown[8:, :12].mean()


def test_rollout_figure_shows_images_beside_their_maps(images):
    figure = figures.rollout_figure(images, np.ones((3, 4, 6)), titles=["a", "b", "c"])
    shown = [axis.images[0].get_array() for axis in figure.axes]
    assert len(shown) == 6
    np.testing.assert_allclose(shown[2], (images[1] + 1) / 2, atol=1e-6)
    assert [axis.get_title() for axis in figure.axes[::2]] == ["a", "b", "c"]


def test_similarity_figure_has_one_tile_per_patch_on_one_scale(tmp_path):
    similarity = np.random.default_rng(0).uniform(-1, 1, (2, 3, 2, 3))
    figure = figures.position_similarity_figure(similarity)
    tiles = [axis.images[0] for axis in figure.axes if axis.images]
    np.testing.assert_array_equal(tiles[5].get_array(), similarity[1, 2])
    assert {tile.get_clim() for tile in tiles} == {(-1, 1)}
    figure.savefig(tmp_path / "tiles.png")
    assert (tmp_path / "tiles.png").read_bytes().startswith(b"\x89PNG")
