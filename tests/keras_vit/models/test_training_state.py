"""What a `.keras` file keeps of a training run: frozen layers, optimizer, loss scaling."""

import keras
import numpy as np
import pytest

import keras_vit

KINDS = ("vit", "resnet", "axial_resnet", "masked")


@pytest.fixture(params=KINDS)
def make(request, make_vit, make_resnet, make_axial_resnet):
    """Returns a function that builds a small model of one class."""
    small = {"num_layers": (1,), "image_size": 16}
    return {
        "vit": lambda **overrides: make_vit(num_layers=1, **overrides),
        "resnet": lambda **overrides: make_resnet(**small, **overrides),
        "axial_resnet": lambda **overrides: make_axial_resnet(**small, **overrides),
        "masked": lambda **more: keras_vit.MaskedPatchPrediction(make_vit(num_layers=1, **more)),
    }[request.param]


@pytest.fixture
def train(random_images, few_steps):
    """Returns a function that compiles a model and takes one step."""

    def step(model):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        compiled = {} if isinstance(model, keras_vit.MaskedPatchPrediction) else {"loss": loss}
        model.compile("adam", **compiled, **few_steps)
        model.fit(random_images(4), np.arange(4), batch_size=4, epochs=1, verbose=0)

    return step


def reload(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


@pytest.mark.parametrize("make", ["vit", "masked"], indirect=True)
def test_mixed_float16_scales_the_loss(make, train, tmp_path):
    model = make(dtype="mixed_float16")
    train(model)
    for either in (model, reload(model, tmp_path)):
        assert isinstance(either.optimizer, keras.optimizers.LossScaleOptimizer)


def inner_layer(model):
    """A layer with weights beside others of a layer, and that layer."""
    for outer in model.layers:
        inner = [layer for layer in outer._flatten_layers(include_self=False) if layer.weights]
        if len(inner) > 1:
            return inner[0], outer
    raise AssertionError("no nested layer")


@pytest.mark.parametrize(
    "make, outer, inner",
    [("vit", False, False), ("vit", True, False), *((kind, False, True) for kind in KINDS)],
    indirect=["make"],
)
def test_frozen_layers_stay_frozen(outer, inner, make, train, tmp_path):
    model = make()
    everything = len(model.trainable_variables)
    layer, around = inner_layer(model)
    around.trainable = outer
    layer.trainable = inner
    assert 0 < len(model.trainable_variables) < everything
    train(model)
    loaded = reload(model, tmp_path)
    assert [v.path for v in loaded.trainable_variables] == [
        v.path for v in model.trainable_variables
    ]
    assert int(loaded.optimizer.iterations) == 1
    for one, other in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_unknown_frozen_layer(make_vit):
    config = {**make_vit().get_config(), "trainable_layers": {"encoder_block_09": False}}
    with pytest.raises(ValueError, match="Received: encoder_block_09"):
        keras_vit.VisionTransformer.from_config(config)
