"""Attention rollout against values worked out by hand and against its definition."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import attention_rollout
from keras_vit.analysis.attention import rollout_endpoint, rollout_function

FIRST = [[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
SECOND = [[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]]


def rollout(attention):
    """Multiplies (layers, tokens, tokens) and the identity through the layers."""
    result = np.eye(attention.shape[-1])
    for layer in attention:
        result = (layer + np.eye(len(layer))) / 2 @ result
    return result


def test_two_layers_multiply_with_the_deeper_on_the_left():
    result = rollout(np.array([FIRST, SECOND]))
    expected = [[0.515, 0.3075, 0.1775], [0.21, 0.665, 0.125], [0.1775, 0.185, 0.6375]]
    np.testing.assert_allclose(result, expected, atol=1e-12)
    mask = result[0, 1:] / result[0, 1:].max()
    np.testing.assert_allclose(mask, [1, 0.57723577], atol=1e-8)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"num_layers": 1},
        {"position_embedding": "relative"},
        {"classifier": "gap"},
        {"classifier": "map"},
        {"resnet": {"num_layers": ()}, "patch_size": 1},
    ],
)
def test_the_row_of_the_readout_is_laid_out_on_the_grid(make_model, images, to_numpy, overrides):
    model = make_model(**overrides)
    maps = attention_rollout(model, images, batch_size=2)
    tensors = keras_vit.analysis.attention_tensors(model)
    attention = [to_numpy(keras.Model(model.input, tensor)(images)) for tensor in tensors]
    read = np.full((3, 24), 1 / 24)
    if overrides == {"classifier": "map"}:
        pool = model.get_layer("pool")
        encoded = keras.Model(model.input, model.endpoints["encoded"])(images)
        read = to_numpy(pool.probabilities(pool.probe, encoded)).mean(axis=1)[:, 0]
        assert read.std() > 1e-3
    for index, image_map in enumerate(maps):
        rows = rollout(np.stack(attention)[:, index].mean(axis=1))
        row = read[index] @ rows if "classifier" in overrides else rows[0, 1:]
        expected = (row / row.max()).reshape(model.grid_size)
        np.testing.assert_allclose(image_map, expected, rtol=1e-4)
    assert maps.shape == (3, 4, 6)
    assert maps.dtype == np.float32
    # XLA multiplies by the reciprocal, which may be off by a bit.
    np.testing.assert_allclose(maps.max(axis=(1, 2)), 1, rtol=2e-7)
    assert maps.min() >= 0


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
