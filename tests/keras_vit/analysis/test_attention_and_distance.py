"""Attention maps and distances against closed forms and values worked out by hand."""

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
def test_uniform_attention(side, stride, class_token, renormalize, expected, to_numpy):
    tokens = side * side + class_token
    uniform = np.full((tokens, tokens), 1 / tokens)
    mean = mean_distance(uniform, token_distances((side, side), stride), renormalize)
    assert to_numpy(mean) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("overrides", "stride"),
    [
        ({}, 4),
        ({"resnet": {"num_layers": ()}, "patch_size": 2}, 8),
        ({"resnet": {"num_layers": (1, 1)}, "patch_size": 1}, 8),
    ],
)
def test_model_averages_over_images_in_pixels(make_model, images, to_numpy, overrides, stride):
    model = make_model(num_layers=2, **overrides)
    assert model.token_stride == stride
    maps = to_numpy(keras_vit.attention_maps(model, images)).astype("float64")[..., 1:, 1:]
    rows, columns = model.grid_size
    expected = np.zeros(maps.shape[:3])
    for query in range(rows * columns):
        for key in range(rows * columns):
            (i, j), (k, m) = divmod(query, columns), divmod(key, columns)
            expected += stride * np.hypot(i - k, j - m) * maps[..., query, key] / (rows * columns)
    result = attention_distance(model, images, batch_size=2)
    assert result.shape == (2, 2)
    np.testing.assert_allclose(result, expected.mean(axis=1), rtol=1e-4)


@pytest.mark.parametrize("analyze", [attention_distance, attention_rollout])
def test_no_image_is_an_error(analyze, make_model, images):
    with pytest.raises(ValueError, match="at least one image"):
        analyze(make_model(), images[:0])


@pytest.mark.parametrize(
    "analyze", [attention_distance, attention_rollout, keras_vit.attention_maps]
)
def test_pixels_of_another_range_are_an_error(analyze, make_model, images):
    with pytest.raises(ValueError, match=r"Expected images in \[-1, 1\]"):
        analyze(make_model(), 127.5 * (images + 1))


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


def test_axial_attention_has_no_such_maps(make_vit, random_images):
    with pytest.raises(ValueError, match="one map for every row"):
        keras_vit.attention_maps(make_vit(attention="axial", classifier="gap"), random_images())
    model = make_vit()
    around = keras.Sequential([keras.Input(model.input.shape[1:]), model])
    with pytest.raises(ValueError, match=rf"model\.get_layer\('{model.name}'\)"):
        keras_vit.attention_maps(around, random_images())
