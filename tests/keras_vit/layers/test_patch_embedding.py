import numpy as np

from keras_vit.layers import FlattenGrid, PatchEmbedding


def test_patches_are_projected_row_by_row(to_numpy):
    rng = np.random.default_rng(0)
    images = rng.standard_normal((2, 6, 9, 3)).astype("float32")
    layer = PatchEmbedding(hidden_size=5, patch_size=3)
    layer.build(images.shape)
    kernel, bias = rng.standard_normal((3, 3, 3, 5)), rng.standard_normal(5)
    layer.set_weights([kernel, bias])
    tokens = to_numpy(FlattenGrid()(layer(images)))
    patches = images.reshape(2, 2, 3, 3, 3, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 6, 27)
    np.testing.assert_allclose(tokens, patches @ kernel.reshape(27, 5) + bias, atol=1e-5)


def test_incomplete_patches_are_cropped(to_numpy):
    images = np.random.default_rng(0).standard_normal((1, 8, 7, 3)).astype("float32")
    layer = PatchEmbedding(hidden_size=5, patch_size=3)
    expected = to_numpy(layer(images[:, :6, :6]))
    np.testing.assert_array_equal(to_numpy(layer(images)), expected)


def test_initial_kernel(to_numpy):
    layer = PatchEmbedding(hidden_size=256, patch_size=8)
    layer.build((None, 32, 32, 3))
    kernel = to_numpy(layer.projection.kernel)
    # LeCun's normal is cut at two standard deviations and widened to make up for it.
    assert abs(kernel.std() * np.sqrt(192) - 1) < 0.01
    assert np.abs(kernel).max() <= 2 / np.sqrt(192) / 0.8796257 + 1e-6


def test_training_computes_the_same_product(to_numpy):
    rng = np.random.default_rng(0)
    layer = PatchEmbedding(hidden_size=5, patch_size=4)
    images = rng.standard_normal((2, 9, 14, 3)).astype("float32")
    layer.build(images.shape)
    for weight in layer.weights:
        weight.assign(rng.standard_normal(weight.shape))
    expected = to_numpy(layer(images, training=False))
    np.testing.assert_allclose(to_numpy(layer(images, training=True)), expected, atol=1e-4)
