import numpy as np
import pytest

from keras_vit.layers import RelativePosition


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_logits_are_those_of_the_distance(tokens, to_numpy):
    rng = np.random.default_rng(0)
    query = rng.standard_normal((3, 2, tokens, 4)).astype("float32")
    layer = RelativePosition()
    layer.build((None, 2, tokens, 4))
    table = rng.standard_normal((2 * tokens - 1, 4)).astype("float32")
    layer.set_weights([table])
    expected = np.empty((3, 2, tokens, tokens), "float32")
    for q in range(tokens):
        for k in range(tokens):
            expected[..., q, k] = query[:, :, q] @ table[q - k + tokens - 1]
    np.testing.assert_allclose(to_numpy(layer(query)), expected, atol=1e-6)
    np.testing.assert_allclose(to_numpy(layer(query[:, :, :1])), expected[:, :, :1], atol=1e-6)


def test_number_of_rows_of_base():
    layer = RelativePosition()
    layer.build((None, 12, 197, 64))
    assert layer.embedding.shape == (393, 64)


def test_fixed_length_is_needed():
    with pytest.raises(ValueError, match="fixed number of tokens"):
        RelativePosition().build((None, 2, None, 4))
