import keras
import numpy as np
import pytest

import keras_vit


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


def test_maps_leave_the_model_alone(make_vit, random_images):
    model = make_vit()
    layers = [layer.name for layer in model.layers]
    variables = len(model.variables)
    keras_vit.attention_maps(model, random_images())
    assert [layer.name for layer in model.layers] == layers
    assert len(model.variables) == variables


def test_axial_attention_has_no_such_maps(make_vit, random_images):
    with pytest.raises(ValueError, match="one map for every row"):
        keras_vit.attention_maps(make_vit(attention="axial", classifier="gap"), random_images())
