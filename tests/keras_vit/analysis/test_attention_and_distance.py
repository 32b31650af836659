"""Attention maps and distances against closed forms and values worked out by hand."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import attention_distance, mean_distance, token_distances


@pytest.mark.parametrize(
    ("side", "stride", "expected"),
    [(14, 16, 116.492227), (7, 32, 115.502894), (16, 14, 116.565053), (24, 16, 200.047983)],
)
def test_uniform_attention(side, stride, expected, to_numpy):
    tokens = side * side
    distances = token_distances((side, side), stride)
    uniform = np.full((tokens, tokens), 1 / tokens)
    assert to_numpy(mean_distance(uniform, distances)) == pytest.approx(expected, rel=1e-6)


def test_attention_to_the_class_token_counts_as_no_distance(to_numpy):
    distances = token_distances((14, 14), 16)
    uniform = np.full((197, 197), 1 / 197)
    assert to_numpy(mean_distance(uniform, distances)) == pytest.approx(115.900896, rel=1e-6)
    renormalized = mean_distance(uniform, distances, renormalize=True)
    assert to_numpy(renormalized) == pytest.approx(116.492227, rel=1e-6)


def test_queries_are_averaged(to_numpy):
    attention = np.array(
        [[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.1, 0.2, 0.3, 0.4]]
    )
    distances = token_distances((2, 2), 16)
    by_query = [13.656854, 8, 0, 10.262742]
    np.testing.assert_allclose((attention * distances).sum(-1), by_query, atol=1e-6)
    assert to_numpy(mean_distance(attention, distances)) == pytest.approx(7.979899, rel=1e-6)


def test_rows_and_columns_of_a_rectangle_are_not_confused():
    distances = token_distances((2, 3), 10)
    assert distances[0, 2] == 20
    assert distances[0, 3] == 10
    assert distances[0, 5] == pytest.approx(10 * np.sqrt(5))


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


def test_no_image_is_an_error(make_model, images):
    with pytest.raises(ValueError, match="at least one image"):
        attention_distance(make_model(), images[:0])


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
