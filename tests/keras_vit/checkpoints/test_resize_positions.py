"""Position embeddings and FlexiViT's patch kernels, whose logits are among the golden cases."""

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError
from keras_vit.checkpoints import resize_positions as resized
from keras_vit.checkpoints.patch_embedding import resize_kernel
from keras_vit.checkpoints.torch_layouts import HUGGING_FACE_DINOV2, HUGGING_FACE_VIT
from keras_vit.interpolation import half_pixel_weights
from tests.keras_vit.small import make_vit, to_numpy


@pytest.mark.rows(
    ([[1, 2], [3, 5]], (3, 3), [[1, 1.5, 2], [2, 2.75, 3.5], [3, 4, 5]]),
    # Shrinking samples without averaging.
    (np.arange(16).reshape(4, 4), (2, 2), [[0, 3], [12, 15]]),
    ([[1, 2], [3, 5]], (1, 2), [[1, 2]]),
    ([[7]], (2, 3), np.full((2, 3), 7)),
)
def test_small_grids(grid, size, expected):
    found = resized.resize_grid(np.asarray(grid, "float32")[..., None], *size)
    np.testing.assert_array_equal(found[..., 0], expected)


@pytest.mark.parametrize("source", [7, 12, 14])
def test_scipys_zoom_where_that_is_right(source):
    from scipy.ndimage import zoom

    grid = np.random.default_rng(0).standard_normal((source, source, 3), "float32")
    for target in (2, 7, 10, 24, 37):
        expected = zoom(grid, (target / source, target / source, 1), order=1)
        np.testing.assert_allclose(resized.resize_grid(grid, target, target), expected, atol=5e-7)


@pytest.mark.parametrize("interpolation", ["corners", "centers", "antialiased"])
def test_same_size_is_the_same_bits_and_constants_stay(interpolation):
    grid = np.random.default_rng(0).standard_normal((7, 9, 4)).astype("float32")
    assert resized.resize_grid(grid, 7, 9, interpolation=interpolation).tobytes() == grid.tobytes()
    for size in ((5, 5), (15, 15), (4, 9)):
        constant = resized.resize_grid(np.ones_like(grid), *size, interpolation=interpolation)
        np.testing.assert_allclose(constant, 1, rtol=1e-6)


@pytest.mark.rows(
    *((197, token, (24, 24), None, None, (14, 14, 1)) for token in (False, True)),
    *((196, token, (24, 24), None, None, (14, 14, 0)) for token in (False, True)),
    # 18 x 32 has as many cells as 24 x 24.
    (577, True, (18, 32), None, None, (18, 32, 1)),
    (577, True, (18, 32), (24, 24), None, (24, 24, 1)),
    # And 14 x 14 without a class token is 13 x 15 with one.
    (196, True, (13, 15), None, None, (13, 15, 1)),
    (196, True, (13, 15), (14, 14), None, (14, 14, 0)),
    # Without a class token, a square comes before the model's grid with an entry for one.
    (196, False, (13, 15), None, None, (14, 14, 0)),
    (10, True, (2, 5), None, None, (2, 5, 0)),
    (6, False, (2, 3), None, None, (2, 3, 0)),
    (13, True, (5, 5), (3, 4), None, (3, 4, 1)),
    (2, True, (5, 5), None, None, (1, 1, 1)),
    # 16 entries of a format that always has a class token are no grid of 4 x 4.
    *((16, token, (5, 3), None, True, (5, 3, 1)) for token in (False, True)),
    (17, True, (3, 3), None, True, (4, 4, 1)),
    (16, True, (3, 5), None, False, (4, 4, 0)),
)
def test_grid_of_a_table(entries, class_token, grid_size, stated, class_entry, expected):
    assert resized.grid_of_table(entries, class_token, grid_size, stated, class_entry) == expected


@pytest.mark.rows(
    *((entries, None, None, "position_grid") for entries in (0, 13, 195)),
    (197, (3, 3), None, "3 rows and 3 columns"),
    (16, None, HUGGING_FACE_VIT.class_entry, "4 columns, with a class token"),
    (16, None, HUGGING_FACE_DINOV2.class_entry, "4 columns, with a class token"),
)
def test_a_table_without_grid(entries, stated, class_entry, message):
    with pytest.raises(CheckpointError, match=message):
        resized.grid_of_table(entries, True, (4, 4), stated, class_entry)


def test_the_class_tokens_entry_half_pixel_weights_and_grown_patches():
    table = np.random.default_rng(0).standard_normal((1, 5, 2), "float32")
    patches = resized.resize_table(table, False, (3, 4))
    assert patches.shape == (1, 12, 2)
    for given, token in ((table, table[:, :1]), (table[:, 1:], np.zeros((1, 1, 2)))):
        expected = np.concatenate([token, patches], 1)
        np.testing.assert_array_equal(resized.resize_table(given, True, (3, 4)), expected)
    """Of two pixels to four: quarters between, and the edges repeated."""
    expected = [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]]
    np.testing.assert_allclose(half_pixel_weights(2, 4), expected)
    np.testing.assert_allclose(half_pixel_weights(4, 2, antialias=True).sum(1), 1)
    assert (half_pixel_weights(4, 2, antialias=True) > 0).sum() > 4
    """Section 3.4: <B x, w'> = <x, w> for every patch x if B enlarges."""
    by_row, by_column = half_pixel_weights(8, 13), half_pixel_weights(6, 9)
    rng = np.random.default_rng(1)
    patch, kernel = rng.standard_normal((8, 6, 3)), rng.standard_normal((8, 6, 3, 5))
    grown = np.einsum("rs,ct,sti->rci", by_row, by_column, patch)
    found = np.einsum("rci,rcio->o", grown, resize_kernel(kernel, 13, 9))
    np.testing.assert_allclose(found, np.einsum("sti,stio->o", patch, kernel))


def test_another_patch_size_must_be_asked_for(saved):
    model = make_vit(patch_size=8, representation_size=12)
    with pytest.raises(CheckpointError, match="flexible=True") as error:
        keras_vit.load_checkpoint(model, saved)
    assert error.value.mis_shaped == ("embedding/kernel",)
    keras_vit.load_checkpoint(model, saved, flexible=True)


def test_a_pytorch_file_is_resized_as_an_npz(cases, build_case, write_case, tmp_path):
    """As FlexiViT of timm: positions without class token, images in [-1, 1]."""
    case, half = cases["deit3"], (0.5, 0.5, 0.5)
    path = write_case(case, tmp_path)
    model = build_case(case)
    keras_vit.load_checkpoint(model, path, mean=half, std=half)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    small, other = build_case(case, patch_size=8), build_case(case, patch_size=8)
    keras_vit.load_checkpoint(small, path, mean=half, std=half, flexible=True)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz", flexible=True)
    for mine, theirs in zip(small.variables, other.variables, strict=True):
        np.testing.assert_allclose(to_numpy(mine), to_numpy(theirs), atol=1e-6)
