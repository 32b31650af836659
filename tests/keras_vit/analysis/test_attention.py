"""Attention maps, distances and rollout against their definitions and values worked out by hand."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import (
    attention_distance,
    attention_rollout,
    mean_distance,
    token_distances,
)
from keras_vit.analysis.attention import rollout_endpoint, rollout_function


@pytest.mark.parametrize(
    ("side", "stride", "class_token", "renormalize", "expected"),
    [
        (14, 16, 0, False, 116.492227),
        (7, 32, 0, False, 115.502894),
        (16, 14, 0, False, 116.565053),
        (24, 16, 0, False, 200.047983),
        # Attention to the class token counts as distance 0.
        (14, 16, 1, False, 115.900896),
        (14, 16, 1, True, 116.492227),
    ],
)
def test_distance_of_uniform_attention(side, stride, class_token, renormalize, expected, to_numpy):
    tokens = side * side + class_token
    uniform = np.full((tokens, tokens), 1 / tokens)
    mean = mean_distance(uniform, token_distances((side, side), stride), renormalize)
    assert to_numpy(mean) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("overrides", "stride"),
    [
        ({"register_tokens": 2}, 4),
        ({"resnet": {"num_layers": ()}, "patch_size": 2}, 8),
        ({"resnet": {"num_layers": (1, 1)}, "patch_size": 1}, 8),
    ],
)
def test_distance_averages_over_images_in_pixels(make_model, images, to_numpy, overrides, stride):
    model = make_model(num_layers=2, **overrides)
    assert model.token_stride == stride
    # Of class token and patches: register tokens are left out.
    maps = to_numpy(keras_vit.attention_maps(model, images)).astype("float64")[..., 1:, 1:]
    places = stride * np.argwhere(np.ones(model.grid_size))
    distances = np.linalg.norm(places[:, None] - places, axis=-1)
    expected = (maps * distances).sum(-1).mean(axis=(1, 3))
    result = attention_distance(model, images, batch_size=2)
    assert result.shape == (2, 2)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_maps_are_the_softmax_of_each_block(make_vit, random_images, forward, to_numpy):
    model = make_vit()
    maps = to_numpy(keras_vit.attention_maps(model, random_images()))
    assert maps.shape == (2, 3, 2, 17, 17)
    np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-5)
    block = model.blocks[1]
    tokens = forward(keras.Model(model.input, model.endpoints["block_00"]), random_images())
    normal = to_numpy(block.attention_norm(tokens))

    def heads(dense):
        flat = normal @ to_numpy(dense.kernel) + to_numpy(dense.bias)
        return flat.reshape(3, 17, 2, 8).transpose(0, 2, 1, 3)

    logits = heads(block.attention.query) @ heads(block.attention.key).swapaxes(-1, -2)
    logits = np.exp(logits / np.sqrt(8))
    np.testing.assert_allclose(maps[1], logits / logits.sum(-1, keepdims=True), atol=1e-5)


def read_tokens(model, images, to_numpy):
    """Returns how much the representation draws from each of the last block's tokens."""
    first, count = model.num_prefix_tokens, len(images)
    token = np.eye(1, first + 24).repeat(count, 0)
    mean = np.pad(np.full((count, 24), 1 / 24), ((0, 0), (first, 0)))
    if model.arguments["classifier"] == "map":
        pool = model.get_layer("pool")
        encoded = keras.Model(model.input, model.endpoints["encoded"])(images)
        return to_numpy(pool.probabilities(pool.probe, encoded)).mean(axis=1)[:, 0]
    return {"token": token, "gap": mean, "token_gap": (token + mean) / 2}[
        model.arguments["classifier"]
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        {"num_layers": 1},
        {"position_embedding": "relative"},
        {"classifier": "gap"},
        {"classifier": "map"},
        {"classifier": "token_gap", "register_tokens": 2},
        {"resnet": {"num_layers": ()}, "patch_size": 1},
    ],
)
def test_rollout_multiplies_the_layers_with_the_deeper_on_the_left(
    make_model, images, to_numpy, overrides
):
    model = make_model(**overrides)
    maps = attention_rollout(model, images, batch_size=2)
    tensors = keras_vit.analysis.attention_tensors(model)
    attention = [to_numpy(keras.Model(model.input, tensor)(images)) for tensor in tensors]
    rows = read_tokens(model, images, to_numpy)[:, None]
    for layer in reversed(attention):
        rows = rows @ (layer.mean(axis=1) + np.eye(layer.shape[-1])) / 2
    rows = rows[:, 0, model.num_prefix_tokens :]
    expected = (rows / rows.max(axis=1, keepdims=True)).reshape(3, 4, 6)
    np.testing.assert_allclose(maps, expected, rtol=1e-4)
    assert maps.dtype == np.float32 and maps.min() >= 0
    # XLA multiplies by the reciprocal, which may be off by a bit.
    np.testing.assert_allclose(maps.max(axis=(1, 2)), 1, rtol=2e-7)


def test_what_has_no_such_maps_is_refused(make_vit, make_model, images, random_images):
    model = make_model()
    for analyze in (attention_distance, attention_rollout, keras_vit.attention_maps):
        with pytest.raises(ValueError, match=r"Expected images in \[-1, 1\]"):
            analyze(model, 127.5 * (images + 1))
    for analyze in (attention_distance, attention_rollout):
        with pytest.raises(ValueError, match="at least one image"):
            analyze(model, images[:0])
    with pytest.raises(ValueError, match="one map for every row"):
        keras_vit.attention_maps(make_vit(attention="axial", classifier="gap"), random_images())
    around = keras.Sequential([keras.Input(model.input.shape[1:]), model])
    with pytest.raises(ValueError, match=rf"model\.get_layer\('{model.name}'\)"):
        keras_vit.attention_maps(around, images)


@pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="KERAS_BACKEND=jax, which make test-jax sets"
)
def test_jax_compiles_one_program_for_all_calls(make_model, images, to_numpy, caplog):
    import jax

    model = make_model()
    eager = keras.Model(model.input, rollout_endpoint(model))
    expected = to_numpy(eager(images))
    jax.clear_caches()
    with jax.log_compiles():
        look = rollout_function(model, batch_size=2)
        maps = look(images)
        programs = caplog.text.count("Finished XLA compilation")
        np.testing.assert_array_equal(look(images[:1]), maps[:1])
    np.testing.assert_allclose(maps, expected, rtol=1e-5)
    # The program, and what moves weights and images; operation by operation they are dozens.
    assert 1 <= programs <= 6
    assert caplog.text.count("Finished XLA compilation") == programs
