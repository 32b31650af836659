"""Registers compute along with the tokens and are read by nothing."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.analysis import attention_distance, attention_rollout
from keras_vit.checkpoints.official_names import weights_of


@pytest.mark.parametrize("classifier", ["token", "gap", "map", "unpooled"])
def test_registers_are_seen_through_attention_alone(classifier, make_vit, random_images, forward):
    plain = make_vit(classifier=classifier)
    model = make_vit(seed=1, classifier=classifier, register_tokens=3)
    given = {weight.name: weight.variable for weight in weights_of(plain)}
    for weight in weights_of(model):
        if weight.name != "reg":
            weight.variable.assign(given[weight.name])
    assert np.abs(forward(model, random_images()) - forward(plain, random_images())).max() > 1e-2
    for block in (*model.blocks, *plain.blocks):
        block.attention.out.kernel.assign(0 * block.attention.out.kernel)
    images = random_images()
    np.testing.assert_allclose(forward(model, images), forward(plain, images), atol=2e-5)


@pytest.mark.parametrize("classifier", ["token", "gap", "map"])
def test_maps_leave_registers_out(classifier, make_vit, random_images, to_numpy):
    model, images = make_vit(classifier=classifier, register_tokens=2), random_images()
    first = int(classifier == "token")
    maps = to_numpy(keras_vit.attention_maps(model, images))
    assert maps.shape == (2, 3, 2, 16 + first, 16 + first)
    assert (maps.sum(-1) < 1).all()
    every = keras.Model(model.input, list(model.attention_endpoints.values()))(images)
    patches = np.stack(list(map(to_numpy, every)))[..., first + 2 :, first + 2 :]
    np.testing.assert_allclose(maps[..., first:, first:], patches, atol=1e-6)
    assert attention_rollout(model, images).shape == (3, 4, 4)
    assert attention_distance(model, images).shape == (2, 2)
