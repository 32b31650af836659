import keras
import numpy as np
import pytest

from keras_vit.layers import EncoderBlock


def test_equations_2_and_3(to_numpy):
    rng = np.random.default_rng(0)
    block = EncoderBlock(num_heads=2, mlp_dim=8)
    tokens = rng.standard_normal((3, 5, 4)).astype("float32")
    block.build(tokens.shape)
    for weight in block.weights:
        weight.assign(rng.standard_normal(weight.shape))
    attended = tokens + to_numpy(block.attention(block.attention_norm(tokens)))
    expected = attended + to_numpy(block.mlp(block.mlp_norm(attended)))
    np.testing.assert_allclose(to_numpy(block(tokens)), expected, atol=1e-5)
    first = to_numpy(block(tokens, first_token_only=True))
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
