import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from tests.keras_vit.small import FEW_STEPS, forward, make_axial, make_images, make_resnet, make_vit

FAMILIES = {
    "token": {},
    "gap": {"classifier": "gap", "position_embedding": "sincos_2d", "remat": True},
    "map": {"classifier": "map"},
    "distilled": {"classifier": "distilled", "position_embedding": "learned_2d"},
    "unpooled": {"classifier": "unpooled", "position_embedding": "relative"},
    "representation": {"num_classes": None, "position_embedding": "none"},
    "rectangle": {"image_size": (16, 24), "position_placement": "every", "flash_attention": False},
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


# Those with layers of their own.
UNLIKE = ["token", "map", "hybrid", "axial", "learned_2d", "resnet_v2", "axial_resnet"]
CLASSES = {  # Small models of every class.
    "vit": lambda **more: make_vit(num_layers=1, **more),
    "resnet": lambda: make_resnet(num_layers=(1,), image_size=16),
    "axial_resnet": lambda: make_axial(num_layers=(1,), image_size=16),
    "masked": lambda **more: keras_vit.MaskedPatchPrediction(make_vit(num_layers=1, **more)),
}


def make(family, **more):
    makes = {"resnet_v2": make_resnet, "axial_resnet": make_axial}
    return makes.get(family, make_vit)(**FAMILIES[family] | more)


def reload(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def images_for(model):
    return make_images(2, *model.input.shape[1:3])[..., : model.input.shape[-1]]


def batch_of(side):
    return np.zeros((2, side, side, 3), "float32"), np.zeros((2, 3), "float32")


class Batches(keras.utils.PyDataset):
    def __init__(self, side):
        super().__init__()
        self.side = side

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return batch_of(self.side)


@pytest.mark.parametrize("compiled", [False, True])
def test_images_of_another_shape_are_refused_with_what_to_do(compiled):
    model = make_vit(num_layers=1, num_classes=3)
    if compiled:
        model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    calls = [model, lambda images: model.predict(images, verbose=0)]
    calls += (
        [lambda images: model.fit(images, np.zeros((len(images), 3)), verbose=0)]
        if compiled
        else []
    )
    for call in calls:
        for shape, advice in (
            ((2, 24, 24, 3), "Resize them. model.any_resolution() has the same weights"),
            ((2, 16, 16, 1), "Convert them, or build the model with in_channels."),
            ((16, 16, 3), "One image is a batch as images[None]."),
        ):
            with pytest.raises(ValueError) as error:
                call(np.zeros(shape, "float32"))
            expected = "expected images of shape (None, 16, 16, 3). Received: ("
            assert expected in str(error.value) and advice in str(error.value)
    with pytest.raises(ValueError, match=r"Channels come last: transpose them\.$"):
        model(np.zeros((2, 3, 16, 16)))
    with pytest.raises(ValueError, match=r"Resize them\.$"):
        CLASSES["resnet"]()(np.zeros((1, 24, 24, 3)))


def test_data_is_looked_at_before_keras_on_jax_takes_the_weights_out():
    model = make_vit(num_layers=1, num_classes=3)
    model.compile("sgd", "mse")
    for call in (model.fit, model.evaluate, model.predict):
        for data in (Batches(24), tf.data.Dataset.from_tensors(batch_of(24))):
            with pytest.raises(ValueError, match="Resize them"):
                call(data, verbose=0)
        call(Batches(16), verbose=0)
    with pytest.warns(UserWarning, match=r"\[-1, 1\].*Pass images / 127.5 - 1"):
        model.predict(np.full((2, 16, 16, 3), 255, "uint8"), verbose=0)


def test_a_copy_by_its_config_is_one_of_ours_and_hdf5_is_refused(tmp_path):
    model = make_vit(num_layers=1, num_classes=3)
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    images = make_images(2, 16, 16)
    np.testing.assert_array_equal(forward(copy, images), forward(model, images))
    assert [*copy.endpoints] == [*model.endpoints]
    for name in ("m.h5", "M.HDF5"):
        with pytest.raises(ValueError, match=f"ends with .keras.* Received: .*{name}"):
            model.save(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_an_activation_that_would_be_lost_is_refused(tmp_path):
    model = make_vit(num_classes=3)
    model.get_layer("head").activation = keras.activations.softmax
    with pytest.raises(ValueError, match="Received: softmax, set on "):
        model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="Received: softmax, set on "):
        keras_vit.predict(model, np.zeros((16, 16, 3), "uint8"))


@pytest.mark.parametrize("family", FAMILIES)
def test_keras_file(family, tmp_path):
    model = make(family)
    loaded = reload(model, tmp_path)
    assert type(loaded) is type(model) and loaded.get_config() == model.get_config()
    assert [w.path for w in loaded.weights] == [w.path for w in model.weights]
    np.testing.assert_array_equal(*(forward(each, images_for(model)) for each in (loaded, model)))
    for layer in model.layers:
        config = layer.get_config()
        assert type(layer).from_config(config).get_config() == config


@pytest.mark.parametrize("family", UNLIKE)
@pytest.mark.rows("mixed_bfloat16", long=["mixed_float16"])
def test_half_precision(policy, family):
    half, single = make(family, dtype=policy), make(family)
    half.set_weights(single.get_weights())
    result, expected = (forward(each, images_for(single)) for each in (half, single))
    assert result.dtype == np.float32
    assert {keras.backend.standardize_dtype(w.dtype) for w in half.weights} == {"float32"}
    error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
    assert 0 < error < {"mixed_bfloat16": 5e-2, "mixed_float16": 1e-2}[policy]


def test_training_continues_from_a_file_with_optimizer_and_random_streams(tmp_path):
    model = make_vit(dropout_rate=0.3, num_layers=1)
    train(model)
    resumed = reload(model, tmp_path)
    for either in (model, resumed):
        for _ in range(2):
            either.train_on_batch(make_images(4), np.arange(4))
    for one, other in zip(model.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert [np.asarray(v)[1] for v in resumed.variables if "seed_generator" in v.path] == [3] * 4


@pytest.mark.parametrize("family", ["token", "axial_resnet"])
def test_what_is_frozen_stays_frozen_inside_of_another_model(family, tmp_path):
    frozen, in_part = make(family), make(family)
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
    config = {**in_part.get_config(), "trainable_layers": {"encoder_block_09": False}}
    with pytest.raises(ValueError, match="Received: encoder_block_09"):
        type(in_part).from_config(config)


def train(model):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled = {} if isinstance(model, keras_vit.MaskedPatchPrediction) else {"loss": loss}
    model.compile("adam", **compiled, **FEW_STEPS)
    model.fit(make_images(4), np.arange(4), batch_size=4, epochs=1, verbose=0)


@pytest.mark.parametrize("name", ["vit", "masked"])
def test_mixed_float16_scales_the_loss(name, tmp_path):
    model = CLASSES[name](dtype="mixed_float16")
    train(model)
    for either in (model, reload(model, tmp_path)):
        assert isinstance(either.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.rows("vit", "resnet", long=["axial_resnet", "masked"])
def test_frozen_layers_stay_frozen(name, outer, tmp_path):
    """A layer inside of another, or one that stays trainable within one that is frozen."""
    model = CLASSES[name]()
    everything = len(model.trainable_variables)
    nested = ([e for e in each._flatten_layers(False) if e.weights] for each in model.layers)
    pairs = zip(model.layers, nested, strict=True)
    around, (layer, *_) = next(pair for pair in pairs if len(pair[1]) > 1)
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


def test_global_policy_is_followed(request):
    before = keras.config.dtype_policy()
    request.addfinalizer(lambda: keras.config.set_dtype_policy(before))
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = make_vit(num_layers=1)
    assert model.blocks[0].compute_dtype == "bfloat16"
    assert model.get_layer("head").compute_dtype == "float32"


def test_models_keep_what_they_are_told_of_classes_and_photos(tmp_path):
    model = make_vit(num_classes=3)
    assert model.class_names is None and "class_names" not in model.get_config()
    model.class_names = ["crow", "finch", "château d'eau"]
    model.preprocessing = "decode|resize(16)|value_range(-1, 1)"
    for copy in (reload(model, tmp_path), type(model).from_config(model.get_config())):
        assert copy.class_names == ("crow", "finch", "château d'eau")
        assert copy.preprocessing == model.preprocessing
        assert copy.get_config() == model.get_config()
    with pytest.raises(ValueError, match="each of the model's 0 classes"):
        make_vit(num_classes=None).class_names = ["crow"]
    of_one_line = "in UTF-8 and of one line, without the characters 0"
    for names, message in (
        (["crow", "finch"], "each of the model's 3 classes"),
        ({0: "ant", 1: "bee", 2: "cow"}, "Expected a list of class names"),
        *((["a", "b", name], of_one_line) for name in ("two\nlines", "zero\0", "\udce9", " ")),
    ):
        with pytest.raises(ValueError, match=message):
            model.class_names = names


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_a_quantized_model_opens_again(tmp_path, mode):
    model = make_vit(num_layers=1, representation_size=12)
    model.quantize(mode)
    copy = reload(model, tmp_path)
    np.testing.assert_array_equal(*(forward(each, make_images()) for each in (copy, model)))
    assert ("int8" in {str(weight.dtype) for weight in copy.weights}) == (mode != "float8")
    assert copy.get_config() == model.get_config()
