import functools

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import (
    attention_distance,
    attention_rollout,
    class_attention,
    mean_distance,
)
from keras_vit.analysis.attention import rollout_function
from tests.keras_vit.small import endpoints_of, make_images, make_vit, make_wide, of_jax, to_numpy

IMAGES = make_images(3, 16, 24)
POOLED = [{"classifier": name} for name in ("gap", "map", "token_gap")]


@pytest.mark.rows(
    (14, 16, 0, False, 116.492227),
    (7, 32, 0, False, 115.502894),
    (16, 14, 0, False, 116.565053),
    (24, 16, 0, False, 200.047983),
    # Attention to the class token counts as distance 0.
    (14, 16, 1, False, 115.900896),
    (14, 16, 1, True, 116.492227),
)
def test_distance_of_uniform_attention(side, stride, class_token, renormalize, expected):
    tokens = side * side + class_token
    distances = keras_vit.analysis.token_distances((side, side), stride)
    mean = mean_distance(np.full((tokens, tokens), 1 / tokens), distances, renormalize)
    assert to_numpy(mean) == pytest.approx(expected, rel=1e-6)


@pytest.mark.rows(
    ({"register_tokens": 2}, 4),
    ({"resnet": {"num_layers": ()}, "patch_size": 2}, 8),
    ({"resnet": {"num_layers": (1, 1)}, "patch_size": 1}, 8),
)
def test_distance_averages_over_images_in_pixels(overrides, stride):
    model = make_wide(num_layers=2, **overrides)
    assert model.token_stride == stride
    # Of class token and patches: register tokens are left out.
    maps = to_numpy(keras_vit.attention_maps(model, IMAGES)).astype("float64")[..., 1:, 1:]
    places = stride * np.argwhere(np.ones(model.grid_size))
    distances = np.linalg.norm(places[:, None] - places, axis=-1)
    expected = (maps * distances).sum(-1).mean(axis=(1, 3))
    result = attention_distance(model, IMAGES, batch_size=2)
    assert result.shape == (2, 2)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def softmax_of(block, normal, heads):
    """Returns the attention weights of a block, of its normalized tokens."""

    def by_head(dense):
        flat = normal @ to_numpy(dense.kernel) + to_numpy(dense.bias)
        return flat.reshape(*flat.shape[:2], heads, -1).swapaxes(1, 2)

    query, key = by_head(block.attention.query), by_head(block.attention.key)
    weights = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(key.shape[-1]))
    return weights / weights.sum(-1, keepdims=True)


def test_classes_of_a_segmenter_draw_from_patches():
    encoder = make_vit(num_classes=None)
    model = keras_vit.Segmenter(encoder, 3, decoder_heads=2)
    images = make_images()
    found = class_attention(model, images, batch_size=2)
    rows, columns = encoder.grid_size
    assert found.shape == (3, 2, 3, rows, columns)
    last = model.get_layer("decoder_block_01")
    before = keras.Model(model.input, model.endpoints["decoder_block_00"])(images)
    normal = to_numpy(last.attention_norm(before))
    weights = softmax_of(last, normal, heads=2)
    expected = weights.mean(1)[:, -3:, :-3]
    np.testing.assert_allclose(found[:, 1].reshape(expected.shape), expected, atol=1e-5)
    with pytest.raises(ValueError, match='decoder="mask"'):
        class_attention(keras_vit.Segmenter(encoder, 3, "linear"), images)
    with pytest.raises(ValueError, match="a Segmenter"):
        class_attention(make_vit(), images)


def test_maps_are_the_softmax_of_each_block():
    model = make_vit()
    maps = to_numpy(keras_vit.attention_maps(model, make_images()))
    assert maps.shape == (2, 3, 2, 17, 17)
    np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-5)
    block = model.blocks[1]
    normal = to_numpy(block.attention_norm(endpoints_of(model, make_images())["block_00"]))
    np.testing.assert_allclose(maps[1], softmax_of(block, normal, heads=2), atol=1e-5)


@pytest.mark.rows(
    *POOLED,
    *(pooled | {"register_tokens": 2} for pooled in ({}, *POOLED)),
    {"classifier": "unpooled", "num_classes": None},
    {"classifier": "distilled", "register_tokens": 1},
    {"num_layers": 1},
    {"position_embedding": "relative"},
    {"resnet": {"num_layers": ()}, "patch_size": 1},
)
def test_rollout_multiplies_the_layers_with_the_deeper_on_the_left(overrides):
    model = make_wide(**overrides)
    maps = attention_rollout(model, IMAGES, batch_size=2)
    # How much the representation draws from each of the last block's tokens.
    first, classifier = model.num_prefix_tokens, model.arguments["classifier"]
    token = np.eye(1, first + 24)[None]
    mean = np.pad(np.full((1, 1, 24), 1 / 24), ((0, 0), (0, 0), (first, 0)))
    both = np.eye(2, first + 24).mean(0)[None, None]
    rows = {
        "token": token,
        "distilled": both,
        "gap": mean,
        "unpooled": mean,
        "token_gap": (token + mean) / 2,
    }
    rows = rows.get(classifier)
    if classifier == "map":
        pool, encoded = model.get_layer("pool"), endpoints_of(model, IMAGES)["encoded"]
        rows = to_numpy(pool.probabilities(pool.probe, encoded[:, first:])).mean(axis=1)
        rows = np.pad(rows, ((0, 0), (0, 0), (first, 0)))
    for tensor in reversed(keras_vit.analysis.attention_tensors(model)):
        layer = to_numpy(keras.Model(model.input, tensor)(IMAGES)).mean(axis=1)
        rows = rows @ (layer + np.eye(first + 24)) / 2
    rows = rows[:, 0, first:]
    expected = (rows / rows.max(axis=1, keepdims=True)).reshape(3, 4, 6)
    np.testing.assert_allclose(maps, expected, rtol=1e-4)
    assert maps.dtype == np.float32
    # XLA multiplies by the reciprocal, which may be off by a bit.
    np.testing.assert_allclose(maps.max(axis=(1, 2)), 1, rtol=2e-7)


def test_rollout_follows_the_attention_that_lora_changes():
    model, merged = make_wide(), make_wide()
    before = attention_rollout(model, IMAGES)
    for block, target in zip(model.blocks, merged.blocks, strict=True):
        query = block.attention.query
        query.enable_lora(2)
        query.lora_kernel_b.assign(np.random.default_rng(2).standard_normal((2, 16)))
        target.attention.query.kernel.assign(to_numpy(query.kernel))
    maps = attention_rollout(model, IMAGES)
    np.testing.assert_allclose(maps, attention_rollout(merged, IMAGES), rtol=1e-4)
    assert np.abs(maps - before).max() > 0.05


def test_what_has_no_such_maps_is_refused():
    model = make_wide()
    for analyze in (attention_distance, attention_rollout, keras_vit.attention_maps):
        with pytest.raises(ValueError, match=r"Expected images in \[-1, 1\]"):
            analyze(model, 127.5 * (IMAGES + 1))
    for analyze in (attention_distance, attention_rollout):
        with pytest.raises(ValueError, match="at least one image"):
            analyze(model, IMAGES[:0])
    with pytest.raises(ValueError, match="one map for every row"):
        keras_vit.attention_maps(make_vit(attention="axial", classifier="gap"), make_images())
    weights = keras_vit.analysis.embedding_filters, keras_vit.analysis.position_similarity
    maps = keras_vit.attention_maps, attention_rollout
    for analyze in (*(functools.partial(each, images=IMAGES) for each in maps), *weights):
        with pytest.raises(ValueError, match=rf"model\.get_layer\('{model.name}'\)"):
            analyze(keras.Sequential([model]))
    with pytest.raises(ValueError, match=r"set_weights"):
        keras_vit.attention_maps(keras.models.clone_model(model), IMAGES)


@of_jax
def test_jax_compiles_one_program_for_all_calls(caplog):
    import jax

    model = make_wide()
    jax.clear_caches()
    with jax.log_compiles():
        look = rollout_function(model, batch_size=2)
        maps = look(IMAGES)
        programs = caplog.text.count("Finished XLA compilation")
        np.testing.assert_array_equal(look(IMAGES[:1]), maps[:1])
    # The program, and what moves weights and images; operation by operation they are dozens.
    assert 1 <= programs <= 6 and caplog.text.count("Finished XLA compilation") == programs
