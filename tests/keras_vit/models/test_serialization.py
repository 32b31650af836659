"""Configurations, precision policies, and what a `.keras` file keeps of a training run."""

import keras
import numpy as np
import pytest

import keras_vit

FAMILIES = {
    "token": {},
    "gap": {"classifier": "gap", "position_embedding": "sincos_2d", "remat": True},
    "map": {"classifier": "map"},
    "unpooled": {"classifier": "unpooled", "position_embedding": "relative"},
    "representation": {"num_classes": None, "position_embedding": "none"},
    "rectangle": {"image_size": (16, 24), "position_placement": "every", "flash_attention": True},
    "hybrid": {"resnet": {"num_layers": (1,), "width_factor": 0.5}, "image_size": 32},
    "root": {"resnet": {"num_layers": (), "width_factor": 0.5}, "image_size": 32},
    "axial": {"attention": "axial", "classifier": "gap"},
    "learned_2d": {"position_embedding": "learned_2d", "representation_size": 12},
    "shared": {"position_placement": "shared", "in_channels": 1},
    "augreg": {"dropout_rate": 0.1, "stochastic_depth_rate": 0.1, "attention_dropout_rate": 0.1},
    "registers": {"register_tokens": 4, "gelu": "erf", "layer_norm_epsilon": 1e-12},
    "resnet_v2": {"pool_padding": "zero", "image_size": 32},
    "axial_resnet": {"image_size": (16, 24)},
}


@pytest.fixture
def family(request, make_vit, make_resnet, make_axial_resnet):
    """The function that makes the models of a family, and its arguments."""
    makes = {"resnet_v2": make_resnet, "axial_resnet": make_axial_resnet}
    return makes.get(request.param, make_vit), FAMILIES[request.param]


# Those with layers of their own.
unlike_families = pytest.mark.parametrize(
    "family",
    ["token", "map", "hybrid", "axial", "learned_2d", "resnet_v2", "axial_resnet"],
    indirect=True,
)


def reload(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def size_of(arguments):
    size = arguments.get("image_size", 16)
    return size if isinstance(size, tuple) else (size, size)


def test_an_activation_that_would_be_lost_is_refused(make_vit, tmp_path):
    model = make_vit(num_classes=3)
    model.get_layer("head").activation = keras.activations.softmax
    with pytest.raises(ValueError, match="Received: softmax, set on "):
        model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="Received: softmax, set on "):
        keras_vit.predict(model, np.zeros((16, 16, 3), "uint8"))
    with pytest.raises(ValueError, match="Expected a list of names"):
        model.class_names = {0: "ant", 1: "bee", 2: "cow"}


@pytest.mark.parametrize("family", FAMILIES, indirect=True)
def test_keras_file(family, random_images, forward, tmp_path):
    make, arguments = family
    model = make(**arguments)
    loaded = reload(model, tmp_path)
    assert type(loaded) is type(model)
    assert loaded.get_config() == model.get_config()
    assert [w.path for w in loaded.weights] == [w.path for w in model.weights]
    images = random_images(2, *size_of(arguments))[..., : model.input.shape[-1]]
    np.testing.assert_array_equal(forward(loaded, images), forward(model, images))
    for layer in model.layers:
        config = layer.get_config()
        assert type(layer).from_config(config).get_config() == config


@unlike_families
@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.long)]
)
def test_half_precision(policy, family, random_images, forward):
    make, arguments = family
    half, single = make(**arguments, dtype=policy), make(**arguments)
    half.set_weights(single.get_weights())
    images = random_images(2, *size_of(arguments))
    result, expected = forward(half, images), forward(single, images)
    assert result.dtype == np.float32
    assert {keras.backend.standardize_dtype(w.dtype) for w in half.weights} == {"float32"}
    error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
    assert 0 < error < {"mixed_bfloat16": 5e-2, "mixed_float16": 1e-2}[policy]


def test_training_continues_from_a_file(make_vit, random_images, train, tmp_path):
    """A saved model resumes with its optimizer and with its dropout's random streams."""
    model = make_vit(dropout_rate=0.3, num_layers=1)
    train(model)
    resumed = reload(model, tmp_path)
    for either in (model, resumed):
        for _ in range(2):
            either.train_on_batch(random_images(4), np.arange(4))
    for one, other in zip(model.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    streams = [v for v in resumed.variables if "seed_generator" in v.path]
    assert len(streams) == 4
    assert [int(np.asarray(v)[1]) for v in streams] == [3] * 4


@pytest.mark.parametrize("family", ["token", "axial_resnet"], indirect=True)
def test_what_is_frozen_stays_frozen_inside_of_another_model(family, tmp_path):
    make, arguments = family
    frozen, in_part = make(**arguments), make(**arguments)
    frozen.trainable = False
    for layer in in_part.layers[:-1]:
        layer.trainable = False
    for model in (frozen, in_part):
        around = keras.Sequential([keras.Input(model.input_shape[1:]), model])
        copies = [reload(around, tmp_path)]
        copies += [keras.models.clone_model(each) for each in (around, model)]
        for copy in copies:
            assert len(copy.trainable_weights) == len(model.trainable_weights)
    assert len(frozen.trainable_weights) == 0 < len(in_part.trainable_weights)


@pytest.fixture(params=["vit", "resnet", "axial_resnet", "masked"])
def make(request, make_vit, make_resnet, make_axial_resnet):
    """Returns a function that builds a small model of one class."""
    small = {"num_layers": (1,), "image_size": 16}
    return {
        "vit": lambda **overrides: make_vit(num_layers=1, **overrides),
        "resnet": lambda: make_resnet(**small),
        "axial_resnet": lambda: make_axial_resnet(**small),
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


@pytest.mark.parametrize("make", ["vit", "masked"], indirect=True)
def test_mixed_float16_scales_the_loss(make, train, tmp_path):
    model = make(dtype="mixed_float16")
    train(model)
    for either in (model, reload(model, tmp_path)):
        assert isinstance(either.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("outer", [False, True])
def test_frozen_layers_stay_frozen(outer, make, train, tmp_path):
    """A layer inside of another, or one that stays trainable within one that is frozen."""
    model = make()
    everything = len(model.trainable_variables)
    nested = ([e for e in each._flatten_layers(False) if e.weights] for each in model.layers)
    around, (layer, *_) = next(
        pair for pair in zip(model.layers, nested, strict=True) if len(pair[1]) > 1
    )
    around.trainable = outer
    layer.trainable = not outer
    assert 0 < len(model.trainable_variables) < everything
    train(model)
    loaded = reload(model, tmp_path)
    trained = [v.path for v in model.trainable_variables]
    assert [v.path for v in loaded.trainable_variables] == trained
    assert int(loaded.optimizer.iterations) == 1
    for one, other in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_unknown_frozen_layer(make_vit):
    config = {**make_vit().get_config(), "trainable_layers": {"encoder_block_09": False}}
    with pytest.raises(ValueError, match="Received: encoder_block_09"):
        keras_vit.VisionTransformer.from_config(config)


def test_global_policy_is_followed(make_vit):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_vit(num_layers=1)
    finally:
        keras.config.set_dtype_policy(before)
    assert model.blocks[0].compute_dtype == "bfloat16"
    assert model.get_layer("head").compute_dtype == "float32"


def test_models_keep_what_they_are_told_of_classes_and_photos(make_vit, tmp_path):
    model = make_vit(num_classes=3)
    assert model.class_names is None and "class_names" not in model.get_config()
    model.class_names = ["crow", "finch", "château d'eau"]
    model.preprocessing = "decode|resize(16)|value_range(-1, 1)"
    for copy in (reload(model, tmp_path), type(model).from_config(model.get_config())):
        assert copy.class_names == ("crow", "finch", "château d'eau")
        assert copy.preprocessing == model.preprocessing
        assert copy.get_config() == model.get_config()
    with pytest.raises(ValueError, match="each of the model's 3 classes"):
        model.class_names = ["crow", "finch"]
    with pytest.raises(ValueError, match="each of the model's 0 classes"):
        make_vit(num_classes=None).class_names = ["crow"]
    for name in ("two\nlines", "zero\0", "\udce9", " "):
        with pytest.raises(ValueError, match="in UTF-8 and of one line, without the characters 0"):
            model.class_names = ["crow", "finch", name]


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_a_quantized_model_opens_again(make_vit, random_images, to_numpy, tmp_path, mode):
    model = make_vit(num_layers=1, representation_size=12)
    model.quantize(mode)
    copy = reload(model, tmp_path)
    images = random_images()
    np.testing.assert_array_equal(to_numpy(copy(images)), to_numpy(model(images)))
    kinds = {str(weight.dtype) for weight in copy.weights}
    assert ("int8" in kinds) == (mode != "float8")
    assert copy.get_config() == model.get_config()
