import re

import keras
import numpy as np
import pytest

from benchmarks.errors_in_runtimes import small_model
from keras_vit.export.largest_activations import largest_activations


def largest(tensor):
    return float(keras.ops.max(keras.ops.abs(tensor)))


@pytest.mark.parametrize("count", [2, 11])  # one batch, two of unequal sizes
def test_results_inside_of_layers_are_seen(tiny, images, count):
    # The largest results come from the last images.
    images = np.resize(images, (count, 32, 32, 3)) * np.linspace(0.1, 1, count)[:, None, None, None]
    found = largest_activations(tiny, images)
    graph = keras.Model(tiny.input, [tiny.endpoints["embedded"], tiny.endpoints["logits"]])
    tokens, logits = graph(images * 2 - 1)
    block = tiny.get_layer("encoder_block_00")
    normal = block.attention_norm(tokens)
    centered = tokens - keras.ops.mean(tokens, -1, keepdims=True)
    attention = block.attention
    query = attention.project(attention.query, normal[:, :1]) * attention.scale
    scores = attention.logits(query, attention.project(attention.key, normal))
    after = block.attention(normal[:, :1], normal) + tokens[:, :1]
    hidden = block.mlp.hidden_dense(block.mlp_norm(after))
    for layer, operation, expected in (
        ("attention_norm", "mul", centered * centered),
        ("attention_norm", "Mean_1", keras.ops.sum(centered * centered, axis=-1)),
        ("attention", "MatMul", scores),
        ("hidden_dense", "BiasAdd", hidden),
        ("head", "BiasAdd", logits),
    ):
        path = re.compile(rf".*/{layer}(_\d+)?/{operation}")
        value = next(value for name, value in found.items() if path.fullmatch(name))
        assert largest(expected) == pytest.approx(value, rel=1e-5), (layer, operation)


def test_what_saturates_and_what_is_constant_is_left_out(make_vit, images):
    model = make_vit(num_layers=1)
    block = model.get_layer("encoder_block_00")
    block.mlp.hidden_dense.bias.assign([1e6] * 64)
    block.mlp.output_dense.kernel.assign(keras.ops.zeros((64, 32)))
    found = largest_activations(model, images)
    assert 1e6 <= max(found.values()) < 1.1e6  # not its cube
    block.mlp.hidden_dense.kernel.assign(np.full((32, 64), np.inf))
    assert max(largest_activations(model, images).values()) == np.inf
    positions = next(weight for weight in model.weights if "position" in weight.path)
    positions.assign(positions + 1e7)
    block.mlp.hidden_dense.kernel.assign(keras.ops.zeros((32, 64)))
    assert max(largest_activations(model, images).values()) > 1e7  # added to tokens


@pytest.mark.parametrize("family", ["BiT", "attention pooling (MAP)", "Axial-ViT"])
def test_every_endpoint_is_among_the_results(family, images):
    model = small_model(family)
    found = np.array(list(largest_activations(model, images).values()))
    endpoints = keras.Model(model.input, model.endpoints)(images * 2 - 1)
    for name, tensor in endpoints.items():
        if name != "representation":  # a mean, which counts as its sum
            assert np.abs(found / largest(tensor) - 1).min() < 1e-5, name
