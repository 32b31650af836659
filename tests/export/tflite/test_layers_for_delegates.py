import keras
import numpy as np
import pytest

from keras_vit import export
from keras_vit.export.tflite.flatbuffer import TFLiteFile, nodes, producers
from keras_vit.export.tflite.layers_for_delegates import for_delegates, map_head, root_pooling
from keras_vit.layers import MAPHead, RootPooling
from keras_vit.layers.resnet_units import POOL_PADDINGS


def noise(*shape):
    return np.random.default_rng(0).normal(-0.5, 1, shape).astype("float32")


@pytest.mark.parametrize("padding", POOL_PADDINGS)
@pytest.mark.parametrize("size", [(8, 6), (7, 5), (8, 5), (1, 2)])
def test_pooling_over_joined_cells_has_the_same_bits(padding, size):
    layer, features = RootPooling(padding), noise(2, *size, 3)
    expected = keras.ops.convert_to_numpy(layer(features))
    np.testing.assert_array_equal(root_pooling(layer, features), expected)


def test_pooling_with_the_query_in_the_keys_weights_is_the_same(randomize):
    layer = MAPHead(num_heads=2, mlp_dim=16)
    layer.build((None, 5, 8))
    randomize(layer)
    tokens = noise(3, 5, 8)
    expected = keras.ops.convert_to_numpy(layer(tokens))
    np.testing.assert_allclose(map_head(layer, tokens), expected, atol=1e-6)


def test_a_model_keeps_its_weights_and_its_name(make_vit, images):
    model = make_vit(classifier="map")
    respelled = for_delegates(model)
    assert respelled.name == model.name
    assert {id(weight) for weight in respelled.weights} == {id(weight) for weight in model.weights}
    np.testing.assert_allclose(respelled(images), model(images), atol=1e-5)


def test_no_product_of_heads_has_a_constant(make_vit, tmp_path):
    tree = TFLiteFile(export.to_tflite(make_vit(classifier="map"), tmp_path / "m.tflite")).tree
    (graph,) = tree.subgraphs
    products = [each for name, each in nodes(tree, graph) if name == "BATCH_MATMUL"]
    assert products and {int(i) for each in products for i in each.inputs} <= {*producers(graph)}
