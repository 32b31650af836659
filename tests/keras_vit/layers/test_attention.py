"""Attention and what is made of it: blocks and the MAP head."""

import keras
import numpy as np
import pytest

from keras_vit.layers import AxialEncoderBlock, EncoderBlock, MAPHead, MultiHeadSelfAttention


@pytest.fixture
def tokens():
    return np.random.default_rng(1).standard_normal((4, 5, 6)).astype("float32")


@pytest.fixture
def attend(to_numpy):
    """Returns equations 5 to 8 of a layer, one head at a time: (outputs, probabilities)."""

    def project(dense, x):
        return x @ to_numpy(dense.kernel) + to_numpy(dense.bias)

    def compute(layer, queries, tokens):
        query, key, value = (
            project(dense, x)
            for dense, x in ((layer.query, queries), (layer.key, tokens), (layer.value, tokens))
        )
        heads, maps = [], []
        for h in range(2):
            part = slice(3 * h, 3 * h + 3)
            logits = query[..., part] @ key[..., part].transpose(0, 2, 1) / np.sqrt(3)
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            maps.append(weights)
            heads.append(weights @ value[..., part])
        return project(layer.out, np.concatenate(heads, -1)), np.stack(maps, 1)

    return compute


def test_outputs_and_probabilities(attend, tokens, randomized, to_numpy):
    attention = randomized(MultiHeadSelfAttention(num_heads=2), (None, 5, 6))
    outputs, maps = attend(attention, tokens, tokens)
    np.testing.assert_allclose(to_numpy(attention(tokens)), outputs, atol=2e-5)
    np.testing.assert_allclose(to_numpy(attention.probabilities(tokens)), maps, atol=1e-5)
    first = to_numpy(attention(tokens[:, :1], tokens))
    np.testing.assert_allclose(first, outputs[:, :1], atol=2e-5)


def test_softmax_is_float32_in_half_precision(tokens, to_numpy):
    layer = MultiHeadSelfAttention(num_heads=2, dtype="mixed_float16")
    layer.build(tokens.shape)
    probabilities = to_numpy(layer.probabilities(tokens.astype("float16")))
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-6)


def test_probe_of_the_map_head_attends_to_the_tokens(attend, tokens, randomized, to_numpy):
    head = randomized(MAPHead(num_heads=2, mlp_dim=8, gelu="erf"), tokens.shape)
    x, _ = attend(head, to_numpy(head.probe), tokens)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    normal = normal * to_numpy(head.norm.gamma) + to_numpy(head.norm.beta)
    expected = x + to_numpy(head.mlp(normal.astype("float32")))
    np.testing.assert_allclose(to_numpy(head(tokens)), expected[:, 0], atol=2e-5)


def test_equations_2_and_3(tokens, randomized, to_numpy):
    block = randomized(EncoderBlock(num_heads=2, mlp_dim=8), tokens.shape)
    attended = tokens + to_numpy(block.attention(block.attention_norm(tokens)))
    expected = attended + to_numpy(block.mlp(block.mlp_norm(attended)))
    np.testing.assert_allclose(to_numpy(block(tokens)), expected, atol=1e-5)
    first = to_numpy(block(tokens[:, :1], context=tokens))
    np.testing.assert_allclose(first, expected[:, :1], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_policy_reaches_every_layer_within(dtype):
    block = EncoderBlock(num_heads=2, mlp_dim=8, dtype=dtype)
    block.build((None, 5, 4))
    compute = keras.dtype_policies.get(dtype).compute_dtype
    layers = list(block._flatten_layers(include_self=False))
    assert len(layers) >= 12
    assert {layer.compute_dtype for layer in layers} == {compute}
    assert {keras.backend.standardize_dtype(w.dtype) for w in block.weights} == {"float32"}


def test_axial_block_attends_in_rows_then_in_columns(randomized, to_numpy):
    tokens = np.random.default_rng(0).standard_normal((4, 6, 4)).astype("float32")
    block = randomized(AxialEncoderBlock((2, 3), num_heads=2, mlp_dim=8), tokens.shape)
    grid = tokens.reshape(4, 2, 3, 4)
    rows = np.stack([to_numpy(block.row(grid[:, r])) for r in range(2)], 1)
    columns = np.stack([to_numpy(block.column(rows[:, :, c])) for c in range(3)], 2)
    result = to_numpy(block(tokens))
    np.testing.assert_allclose(result, columns.reshape(4, 6, 4), atol=1e-4)
