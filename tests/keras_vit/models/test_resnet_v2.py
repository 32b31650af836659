import keras
import numpy as np
import pytest


@pytest.mark.parametrize("size", [(32, 32), (45, 38)])
def test_pooling_and_head(size, make_resnet, random_images, forward, to_numpy):
    model = make_resnet(image_size=size)
    values = forward(keras.Model(model.input, model.endpoints), random_images(2, *size))
    assert values["block_01"].shape == (2, -(-size[0] // 8), -(-size[1] // 8), 256)
    pooled = values["encoded"].mean((1, 2))
    np.testing.assert_allclose(values["representation"], pooled, atol=1e-5)
    head = model.get_layer("head")
    expected = pooled @ to_numpy(head.kernel) + to_numpy(head.bias)
    np.testing.assert_allclose(values["logits"], expected, atol=1e-4)


def test_initial_head_is_zero():
    import keras_vit

    model = keras_vit.ResNetV2((1,), num_classes=3, image_size=32, head_bias_init=-6.9)
    kernel, bias = model.get_layer("head").get_weights()
    assert not kernel.any()
    np.testing.assert_allclose(bias, -6.9)


def test_padding_of_the_root_matters(make_resnet, random_images, forward):
    images = random_images(2, 32, 32)
    edge, zero = make_resnet(), make_resnet(pool_padding="zero")
    zero.set_weights(edge.get_weights())
    assert np.abs(forward(edge, images) - forward(zero, images)).max() > 1e-3
