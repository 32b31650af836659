"""FlexiViT's resizing; its logits are among the golden cases."""

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError
from keras_vit.checkpoints.flexible import half_pixel_weights, resize_kernel, resize_positions


@pytest.fixture
def kernel():
    return np.random.default_rng(0).standard_normal((8, 6, 3, 5))


def test_half_pixel_weights():
    """Of two pixels to four: quarters between, and the edges repeated."""
    expected = [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]]
    np.testing.assert_allclose(half_pixel_weights(2, 4), expected)
    np.testing.assert_allclose(half_pixel_weights(4, 2, antialias=True).sum(1), 1)
    assert (half_pixel_weights(4, 2, antialias=True) > 0).sum() > 4


def test_grown_patches_have_the_same_embeddings(kernel):
    """Section 3.4: <B x, w'> = <x, w> for every patch x if B enlarges."""
    by_row, by_column = half_pixel_weights(8, 13), half_pixel_weights(6, 9)
    patch = np.random.default_rng(1).standard_normal((8, 6, 3))
    grown = np.einsum("rs,ct,sti->rci", by_row, by_column, patch)
    resized = resize_kernel(kernel, 13, 9)
    np.testing.assert_allclose(
        np.einsum("rci,rcio->o", grown, resized), np.einsum("sti,stio->o", patch, kernel)
    )


def test_shrunk_kernel_is_the_nearest(kernel):
    """Least squares over patches of independent pixels: w' = argmin |B^T w' - w|."""
    product = np.kron(half_pixel_weights(8, 4), half_pixel_weights(6, 5))
    flat = kernel.reshape(48, -1)
    expected = np.linalg.lstsq(product.T, flat, rcond=None)[0]
    np.testing.assert_allclose(resize_kernel(kernel, 4, 5).reshape(20, -1), expected, atol=1e-10)


def test_same_size_is_the_same(kernel):
    np.testing.assert_allclose(resize_kernel(kernel, 8, 6), kernel, atol=1e-12)
    grid = kernel[:, :, 0].astype("float32")
    np.testing.assert_array_equal(resize_positions(grid, 8, 6), grid)


def test_constant_positions_stay(kernel):
    ones = np.ones((7, 7, 3), "float32")
    for size in ((5, 5), (15, 15), (4, 9)):
        np.testing.assert_allclose(resize_positions(ones, *size), 1, rtol=1e-6)


def test_another_patch_size_must_be_asked_for(make_vit, tmp_path):
    keras_vit.save_checkpoint(make_vit(), tmp_path / "a.npz")
    model = make_vit(seed=1, patch_size=8)
    with pytest.raises(CheckpointError, match="flexible=True") as error:
        keras_vit.load_checkpoint(model, tmp_path / "a.npz")
    assert error.value.mis_shaped == ("embedding/kernel",)
    keras_vit.load_checkpoint(model, tmp_path / "a.npz", flexible=True)


def test_enlarged_images_in_enlarged_patches(make_vit, random_images, forward, tmp_path):
    """What PI-resize is for: the same tokens of the same image, twice as large."""
    keras_vit.save_checkpoint(make_vit(), tmp_path / "a.npz")
    model = make_vit(seed=1, patch_size=8, image_size=32)
    keras_vit.load_checkpoint(model, tmp_path / "a.npz", flexible=True)
    images = random_images()
    weights = half_pixel_weights(4, 8)
    # Each patch by itself: at its edges, resizing the whole image would mix neighbors.
    patches = images.reshape(3, 4, 4, 4, 4, 3)
    grown = np.einsum("ai,bj,nricjd->nracbd", weights, weights, patches, optimize=True)
    grown = grown.reshape(3, 32, 32, 3).astype("float32")
    np.testing.assert_allclose(forward(model, grown), forward(make_vit(), images), atol=2e-5)


def test_a_pytorch_file_is_resized_as_an_npz(
    cases, golden, build_case, write_case, to_numpy, tmp_path
):
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
