import numpy as np
import pytest

from keras_vit.layers import FlattenGrid, PatchEmbedding


@pytest.mark.parametrize("training", [False, True])
def test_patches_are_projected_row_by_row(training, randomized, to_numpy):
    """Rows and columns that do not fill a patch are cropped, and a warning says so."""
    images = np.random.default_rng(0).standard_normal((2, 8, 10, 3)).astype("float32")
    with pytest.warns(UserWarning, match=r"patch_size=3\. Received: 8 x 10\. The rows"):
        layer = randomized(PatchEmbedding(hidden_size=5, patch_size=3), images.shape)
    tokens = to_numpy(FlattenGrid()(layer(images, training=training)))
    kernel, bias = (to_numpy(weight) for weight in layer.weights)
    patches = images[:, :6, :9].reshape(2, 2, 3, 3, 3, 3).transpose(0, 1, 3, 2, 4, 5)
    expected = patches.reshape(2, 6, 27) @ kernel.reshape(27, 5) + bias
    np.testing.assert_allclose(tokens, expected, atol=1e-4)
