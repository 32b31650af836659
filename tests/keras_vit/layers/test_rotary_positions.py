"""DINOv3's rotary positions and gated MLPs; its whole models are in `test_dinov3.py`."""

import functools
import json
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.layers import SwiGLU
from keras_vit.layers.position_embeddings_2d import rotated, rotation_tables
from tests.keras_vit.small import (
    BACKEND,
    endpoints_of,
    forward,
    gradients,
    make_images,
    make_vit,
    randomized,
    to_numpy,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "dinov3.json").read_text())["rope"]
make_rotary = functools.partial(
    make_vit, position_embedding="rope_2d", mlp="swiglu", register_tokens=3, image_size=(16, 24)
)


@pytest.mark.parametrize("in_graph", [False, True])
def test_the_table_is_that_of_transformers_and_tokens_before_patches_do_not_turn(in_graph):
    sizes = (3, 5, GOLDEN["head_dim"], 20)
    if in_graph:
        sizes = tuple(each if each == 16 else ops.convert_to_tensor(each) for each in sizes)
    for table, name, still in zip(rotation_tables(*sizes), ("cos", "sin"), (1, 0), strict=True):
        table = to_numpy(table)
        assert table.dtype == "float32" and (table[:5] == still).all()
        np.testing.assert_allclose(np.tile(table[5:], 2), GOLDEN[name], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_halves_turn_as_complex_numbers_in_float32_whatever_is_computed_in(dtype):
    heads = ops.cast(np.random.default_rng(0).standard_normal((2, 3, 17, 8)), dtype)
    x, (cosine, sine) = to_numpy(ops.cast(heads, "float32")), rotation_tables(4, 4, 8, 17)
    turned = (x[..., :4] + 1j * x[..., 4:]) * (cosine + 1j * sine)
    found = rotated(heads, (cosine, sine))
    assert keras.backend.standardize_dtype(found.dtype) == dtype
    # One rounding, of the result: cosines in 16 bits would add theirs.
    error = np.abs(ops.cast(found, "float32") - np.concatenate([turned.real, turned.imag], -1))
    eps = {"float32": 2e-7, "bfloat16": 2**-8, "float16": 2**-11}[dtype]
    assert (error <= 1.01 * eps * np.abs(turned).max()).all()
    assert (to_numpy(ops.cast(found[:, :, :1], "float32")) == x[:, :, :1]).all()


def test_swiglu_is_its_equation():
    layer, x = randomized(SwiGLU(8), (None, 5, 4)), make_images(2, 5, 4)[..., 0]
    dense = (layer.gate_dense, layer.up_dense, layer.output_dense)
    (g, a), (u, b), (d, c) = ([to_numpy(w) for w in (each.kernel, each.bias)] for each in dense)
    gate = x @ g + a
    expected = (gate / (1 + np.exp(-gate)) * (x @ u + b)) @ d + c
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-6)


def test_any_resolution_is_the_model_of_that_size(tmp_path):
    model, other = make_rotary(), make_rotary(image_size=(32, 20))
    other.set_weights(model.get_weights())
    images, names = make_images(2, 32, 20), ("encoded", "block_01/attention")
    anywhere, expected = model.any_resolution(), forward(other, images)
    anywhere.save(tmp_path / "any.keras")
    found = [
        forward(m, images) for m in (anywhere, keras.saving.load_model(tmp_path / "any.keras"))
    ]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        # Eagerly, rows and columns are numbers.
        graph = tf.function(anywhere, [tf.TensorSpec((None, None, None, 3))], autograph=False)
        found.append(graph(images))
    for each in found:
        np.testing.assert_allclose(each, expected, atol=3e-6)
    found, expected = (
        forward(m, images) for m in (model.any_resolution(names), other.up_to(names))
    )
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], atol=3e-6, err_msg=name)


def test_the_class_tokens_shortcut_rollout_and_remat_are_the_models(tmp_path):
    model, images = make_rotary(), make_images(2, 16, 24)
    everything = endpoints_of(model, images)
    np.testing.assert_allclose(forward(model, images), everything["logits"], atol=1e-6)
    maps = to_numpy(keras_vit.attention_maps(model, images))
    assert maps.shape == (2, 2, 2, 25, 25)
    assert keras_vit.analysis.attention_rollout(model, images).shape == (2, 4, 6)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(forward(loaded, images), forward(model, images))
    again = make_rotary(remat=True)
    expected, found = gradients(model, images), gradients(again, images, training=True)
    for path, value in expected.items():
        np.testing.assert_allclose(found[path], value, atol=1e-5, err_msg=path)
    masked = keras_vit.MaskedPatchPrediction(model)
    assert np.isfinite(forward(masked, images)).all()


def test_a_kernel_gets_queries_and_keys_that_are_turned(monkeypatch):
    model, images = make_rotary(), make_images(2, 16, 24)
    expected, calls = endpoints_of(model, images)["encoded"], []

    def kernel(query, key, value):
        calls.append(query.shape)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        return ops.matmul(ops.softmax(scores, axis=-1), value)

    find = "keras_vit.layers.attention_variants.fused_attention"
    monkeypatch.setattr(find, lambda dtype, head_size: kernel)
    np.testing.assert_allclose(endpoints_of(model, images)["encoded"], expected, atol=2e-6)
    assert calls


@pytest.mark.rows(
    {"attention": "axial", "classifier": "gap"},
    {"position_placement": "every"},
    {"hidden_size": 12},
)
def test_what_rotary_positions_need_is_said(arguments):
    with pytest.raises(ValueError, match=r"^Rotary positions .* heads of a multiple of 4"):
        make_rotary(register_tokens=0, **arguments)
