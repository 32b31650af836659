import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import embedding_filters, position_similarity, principal_components
from tests.keras_vit.small import make_wide, to_numpy


def test_components_of_a_planted_kernel_are_found():
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.standard_normal((48, 3)))
    mixture = rng.standard_normal((200, 3))
    mixture, _ = np.linalg.qr(mixture - mixture.mean(axis=0))
    samples = 5 + mixture * [4, 2, 1] @ basis.T
    filters, explained = principal_components(samples.T.reshape(4, 4, 3, 200), components=3)
    np.testing.assert_allclose(explained, np.array([16, 4, 1]) / 21, atol=1e-12)
    for image, direction in zip(filters, basis.T, strict=True):
        direction = direction * np.sign(direction[np.abs(direction).argmax()])
        stretched = (direction - direction.min()) / (direction.max() - direction.min())
        np.testing.assert_allclose(image.ravel(), stretched, atol=1e-9)


@pytest.mark.parametrize(("count", "expected"), [(40, 12), (12, 11), (5, 4)])
def test_there_are_no_more_components_than_directions(count, expected):
    """Of n filters around their mean, n - 1 directions: another would be noise."""
    kernel = np.random.default_rng(0).standard_normal((2, 2, 3, count))
    filters, explained = principal_components(kernel, components=28)
    assert filters.shape == (expected, 2, 2, 3)
    assert explained.min() > 1e-9  # rounding leaves 1e-30
    assert explained.sum() == pytest.approx(1)
    assert (filters.min(axis=(1, 2, 3)) == 0).all() and (filters.max(axis=(1, 2, 3)) == 1).all()


def test_models_show_their_first_convolution():
    vit, hybrid = make_wide(), make_wide(resnet={"num_layers": ()}, patch_size=2)
    kernels = [(vit, vit.get_layer("embedding").projection.kernel, 4)]
    for model in (hybrid, keras_vit.ResNetV2((1,), num_classes=2, image_size=32)):
        root = model.get_layer("conv_root")
        kernels.append((model, root.standardize(root.kernel), 7))
    for model, kernel, side in kernels:
        filters, _ = embedding_filters(model, components=8)
        assert filters.shape == (8, side, side, 3)
        np.testing.assert_array_equal(filters, principal_components(to_numpy(kernel), 8).filters)


def test_similarity_is_without_the_class_token_and_halves_in_two_dimensions():
    model = make_wide()
    table = to_numpy(model.get_layer("position_embedding").embedding)[0]
    similarity = position_similarity(model)
    units = table[1:] / np.linalg.norm(table[1:], axis=1, keepdims=True)
    np.testing.assert_allclose(similarity, (units @ units.T).reshape(4, 6, 4, 6), atol=1e-6)
    np.testing.assert_allclose(np.einsum("ijij->ij", similarity), 1, atol=1e-12)
    assert np.abs(similarity).max() <= 1
    model = make_wide(position_embedding="learned_2d")
    layer = model.get_layer("position_embedding")
    layer.columns.assign(np.eye(6, 8))
    layer.rows.assign(np.eye(4, 8))
    same_row, same_column = np.eye(4)[:, None, :, None], np.eye(6)[None, :, None, :]
    np.testing.assert_allclose(position_similarity(model), (same_row + same_column) / 2, atol=1e-6)


def test_blocks_have_their_own_tiles_or_share_them_and_others_are_refused():
    model = make_wide(position_placement="every")
    first, last = position_similarity(model), position_similarity(model, block=2)
    assert np.abs(first - last).max() > 0.1
    shared = make_wide(position_placement="shared")
    np.testing.assert_array_equal(position_similarity(shared), position_similarity(shared, block=2))
    for kind in ("none", "relative"):
        with pytest.raises(ValueError, match=f"position_embedding='{kind}'"):
            position_similarity(make_wide(position_embedding=kind))
    with pytest.raises(ValueError, match="block=3"):
        position_similarity(make_wide(), block=3)
