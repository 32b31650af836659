import numpy as np
import pytest

from keras_vit.layers import MultiHeadSelfAttention


@pytest.fixture
def attention():
    """Two heads of three channels over tokens of six, random weights."""
    layer = MultiHeadSelfAttention(num_heads=2)
    layer.build((None, 5, 6))
    rng = np.random.default_rng(0)
    layer.set_weights([rng.standard_normal(w.shape) for w in layer.weights])
    return layer


@pytest.fixture
def tokens():
    return np.random.default_rng(1).standard_normal((4, 5, 6)).astype("float32")


def reference(layer, tokens, to_numpy):
    """Equations 5 to 8, one head at a time; returns (outputs, probabilities)."""

    def project(dense, x):
        return x @ to_numpy(dense.kernel) + to_numpy(dense.bias)

    query, key, value = (project(d, tokens) for d in (layer.query, layer.key, layer.value))
    heads, maps = [], []
    for h in range(2):
        part = slice(3 * h, 3 * h + 3)
        logits = query[..., part] @ key[..., part].transpose(0, 2, 1) / np.sqrt(3)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        maps.append(weights)
        heads.append(weights @ value[..., part])
    return project(layer.out, np.concatenate(heads, -1)), np.stack(maps, 1)


def test_outputs_and_probabilities(attention, tokens, to_numpy):
    outputs, maps = reference(attention, tokens, to_numpy)
    np.testing.assert_allclose(to_numpy(attention(tokens)), outputs, atol=2e-5)
    np.testing.assert_allclose(to_numpy(attention.probabilities(tokens)), maps, atol=1e-5)


def test_first_token_only(attention, tokens, to_numpy):
    outputs, _ = reference(attention, tokens, to_numpy)
    first = to_numpy(attention(tokens, first_token_only=True))
    np.testing.assert_allclose(first, outputs[:, :1], atol=2e-5)


def test_initial_kernels(to_numpy):
    layer = MultiHeadSelfAttention(num_heads=4)
    layer.build((None, 5, 128))
    bound = np.sqrt(3 / 128)
    for dense in (layer.query, layer.key, layer.value, layer.out):
        kernel = to_numpy(dense.kernel)
        assert np.abs(kernel).max() <= bound
        assert abs(kernel.std() / (bound / np.sqrt(3)) - 1) < 0.02
        np.testing.assert_array_equal(to_numpy(dense.bias), 0)


def test_softmax_is_float32_in_half_precision(tokens, to_numpy):
    layer = MultiHeadSelfAttention(num_heads=2, dtype="mixed_float16")
    layer.build(tokens.shape)
    probabilities = to_numpy(layer.probabilities(tokens.astype("float16")))
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-6)


def test_heads_must_divide_the_channels():
    with pytest.raises(ValueError, match="multiple of `num_heads`"):
        MultiHeadSelfAttention(num_heads=4).build((None, 5, 6))
