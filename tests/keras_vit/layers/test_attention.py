"""Precision of attention, and axial blocks; golden cases have the rest."""

import keras
import numpy as np
import pytest

from keras_vit.layers import AxialEncoderBlock, EncoderBlock, MultiHeadSelfAttention


def test_softmax_is_float32_in_half_precision(to_numpy):
    tokens = np.random.default_rng(1).standard_normal((4, 5, 6)).astype("float16")
    layer = MultiHeadSelfAttention(num_heads=2, dtype="mixed_float16")
    layer.build(tokens.shape)
    probabilities = to_numpy(layer.probabilities(tokens))
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-6)


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
