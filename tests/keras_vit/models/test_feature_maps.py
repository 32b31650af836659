import keras
import numpy as np
import pytest

import keras_vit
from tests.keras_vit.small import endpoints_of, forward, make_images, make_resnet, make_vit


@pytest.mark.rows(({}, 1), ({"classifier": "gap"}, 0), ({"register_tokens": 3}, 4))
def test_maps_are_the_tokens_of_the_patches_in_their_places(arguments, first):
    model = make_vit(image_size=(16, 24), num_layers=3, **arguments)
    images = make_images(2, 16, 24)
    maps = forward(keras_vit.feature_maps(model, depths=(0, -1)), images)
    assert list(maps) == ["block_00", "block_02"]
    endpoints = endpoints_of(model, images)
    for name, found in maps.items():
        tokens = endpoints[name][:, first:].reshape(2, 4, 6, 16)
        np.testing.assert_allclose(found, tokens, rtol=1e-5, atol=1e-6)


def test_normalized_maps_are_what_the_head_reads():
    model = make_vit(num_layers=2, classifier="gap", num_classes=None)
    images = make_images()
    last = forward(keras_vit.feature_maps(model, (1,), normalize=True), images)["block_01"]
    np.testing.assert_allclose(last.mean(axis=(1, 2)), forward(model, images), rtol=1e-4, atol=1e-5)


def test_depths_by_default_and_wrong_ones():
    model = make_vit(num_layers=6)
    names = ["block_00", "block_02", "block_03", "block_05"]
    assert list(keras_vit.feature_maps(model).output) == names
    stages = keras_vit.feature_maps(make_resnet()).output
    assert all(tensor.shape[1] > 1 for tensor in stages.values()) and "block_00" in stages
    assert list(keras_vit.feature_maps(model, np.array([1, -1])).output) == ["block_01", "block_05"]
    for depths in ((6,), (-7,), (), (1.0,), "a", [[1]]):
        with pytest.raises(ValueError, match="numbers of the model's 6 blocks"):
            keras_vit.feature_maps(model, depths)
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name="mlp")
    for wrong, received in ((other, "mlp, a Seq"), (keras_vit.VisionTransformer, "a type")):
        with pytest.raises(ValueError, match=f"a VisionTransformer or ResN.* Received: {received}"):
            keras_vit.feature_maps(wrong)
