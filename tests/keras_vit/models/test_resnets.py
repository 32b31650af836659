import keras
import numpy as np
import pytest

import keras_vit
from tests.keras_vit.small import endpoints_of, gradients, make_axial, make_images, to_numpy


@pytest.mark.rows(
    ("AxialResNet-S", 11_586_216), ("AxialResNet-M", 25_179_400), ("AxialResNet-L", 43_973_480)
)
def test_parameter_count(name, expected):
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.create_model(name)
        count = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
        shapes = {name: tensor.shape[1:3] for name, tensor in model.endpoints.items()}
    assert count == expected
    for stage, side in enumerate((56, 28, 14, 7)):
        assert shapes[f"block_{stage:02d}"] == (side, side)


def test_a_unit_is_its_branch_and_its_shortcut_and_every_weight_learns():
    model = make_axial(image_size=(16, 24))
    x = endpoints_of(model, make_images(2, 16, 24))["block_00"]
    unit = model.get_layer("block2_unit1")
    down = np.maximum(to_numpy(unit.bn1(unit.conv_down(x))), 0)
    attended = to_numpy(unit.width_attention(unit.height_attention(down)))
    pooled = attended.reshape(2, 2, 2, 3, 2, -1).mean((2, 4))
    branch = to_numpy(unit.bn2(unit.conv_up(np.maximum(pooled, 0))))
    shortcut = to_numpy(unit.bn_proj(unit.conv_proj(x)))
    result = to_numpy(unit(x))
    assert result.shape == (2, 2, 3, 128)
    np.testing.assert_allclose(result, np.maximum(branch + shortcut, 0), atol=1e-5)
    model = make_axial(image_size=(16, 24))
    result = gradients(model, make_images(4, 16, 24), training=True)
    assert set(result) == {v.path for v in model.trainable_variables}
    assert all(np.abs(gradient).max() > 0 for gradient in result.values())


def test_arguments_reach_the_layers_or_are_refused():
    for padding in ("edge", "zero"):
        model = keras_vit.ResNetV2((1,), image_size=32, num_classes=5, pool_padding=padding)
        assert model.get_layer("pool_root").padding == padding
    with pytest.raises(ValueError, match="multiple of 32"):
        keras_vit.create_model("AxialResNet-S", image_size=200)
