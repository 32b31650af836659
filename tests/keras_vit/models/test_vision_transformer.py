import re

import keras
import numpy as np
import pytest

import keras_vit
from tests.tiny_vit import tiny_vit


def logits_from_encoded(model, encoded, to_numpy):
    head = model.get_layer("head")
    return encoded @ to_numpy(head.kernel) + to_numpy(head.bias)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        pytest.param({"position_embedding": "relative"}, marks=pytest.mark.long),
        {"attention": "axial", "classifier": "gap"},
        pytest.param({"classifier": "map"}, marks=pytest.mark.long),
        {"resnet": {"num_layers": (1,), "width_factor": 0.5}, "patch_size": 1},
    ],
)
def test_remat_leaves_the_gradients(kind, make_vit, random_images, gradients):
    rates = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
    arguments = {**kind, **dict.fromkeys(rates, 0.3)}
    plain, remat = make_vit(**arguments), make_vit(remat=True, **arguments)
    state = [np.asarray(v) for v in plain.variables]
    for source, target in zip(state, remat.variables, strict=True):
        target.assign(source)
    expected = gradients(plain, random_images(), training=True)
    result = gradients(remat, random_images(), training=True)
    path = next(iter(expected))
    without = gradients(plain, random_images())[path]
    assert np.abs(expected[path] - without).max() > 1e-3
    for (path, gradient), other in zip(result.items(), expected.values(), strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-6, err_msg=path)


def test_initial_values_and_dropout_rates(to_numpy):
    """Drops after the positions and attention's projection, twice in the MLP, and by depth."""
    rates = {"dropout_rate": 0.1, "attention_dropout_rate": 0.2, "stochastic_depth_rate": 0.2}
    model = tiny_vit(num_layers=5, head_bias_init=-10.0, **rates)
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), 0)
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").bias), -10)
    np.testing.assert_array_equal(to_numpy(model.get_layer("class_token").token), 0)
    assert model.get_layer("dropout").rate == 0.1
    for block, depth in zip(model.blocks, [0, 0.05, 0.1, 0.15, 0.2], strict=True):
        assert block.attention.dropout.rate == 0.2
        assert block.attention_dropout.rate == 0.1
        assert block.mlp.hidden_dropout.rate == block.mlp.output_dropout.rate == 0.1
        assert block.attention_depth.rate == block.mlp_depth.rate == pytest.approx(depth)


def test_endpoints(make_vit, random_images, forward):
    model = make_vit(representation_size=12)
    values = forward(keras.Model(model.input, model.endpoints), random_images())
    expected = {
        "stem": (4, 4, 16),
        **dict.fromkeys(("embedded", "block_00", "block_01", "encoded"), (17, 16)),
        "representation": (12,),
        "logits": (5,),
    }
    assert list(model.endpoints) == list(expected)
    assert {name: value.shape[1:] for name, value in values.items()} == expected
    assert np.abs(values["representation"]).max() < 1
    np.testing.assert_allclose(values["logits"], forward(model, random_images()), atol=2e-6)


@pytest.mark.parametrize("classifier", ["gap", "unpooled", "token_gap", "map", "token"])
def test_classifiers_read_no_registers(classifier, make_vit, random_images, forward, to_numpy):
    model = make_vit(classifier=classifier, register_tokens=3)
    values = forward(keras.Model(model.input, model.endpoints), random_images())
    tokens = values["encoded"]
    patches = tokens[:, model.num_prefix_tokens :]
    assert patches.shape == (3, 16, 16)
    pooled = {
        "gap": lambda: patches.mean(1),
        "unpooled": lambda: patches,
        "token": lambda: tokens[:, 0],
        "token_gap": lambda: np.concatenate([tokens[:, 0], patches.mean(1)], axis=-1),
        "map": lambda: to_numpy(model.get_layer("pool")(patches)),
    }[classifier]()
    np.testing.assert_allclose(values["representation"], pooled, atol=2e-6)
    expected = logits_from_encoded(model, pooled, to_numpy)
    np.testing.assert_allclose(values["logits"], expected, atol=5e-6)


@pytest.mark.parametrize(("placement", "tables"), [("stem", 1), ("every", 3), ("shared", 1)])
def test_placements(placement, tables, make_vit, random_images, forward, to_numpy):
    model = make_vit(position_placement=placement, num_layers=3)
    layers = [layer for layer in model.layers if layer.name.startswith("position_embedding")]
    assert len(layers) == tables
    plain = make_vit(position_embedding="none", num_layers=3)
    for layer in plain.layers:
        layer.set_weights(model.get_layer(layer.name).get_weights())
    blocks = forward(keras.Model(plain.input, plain.endpoints["embedded"]), random_images())
    for index, block in enumerate(plain.blocks):
        if placement != "stem" or index == 0:
            blocks = blocks + to_numpy(layers[index if tables == 3 else 0].embedding)
        blocks = to_numpy(block(blocks))
    encoded = to_numpy(plain.get_layer("encoder_norm")(blocks))
    expected = logits_from_encoded(model, encoded[:, 0], to_numpy)
    np.testing.assert_allclose(forward(model, random_images()), expected, atol=5e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": "mixed_bfloat16"},
        {"classifier": "gap", "position_placement": "every"},
        {"classifier": "map"},
        {"position_embedding": "sincos_2d"},
        {"position_placement": "shared", "classifier": "unpooled"},
        {"position_embedding": "learned_2d", "classifier": "token_gap", "register_tokens": 3},
        {"resnet": {"num_layers": (1, 1), "width_factor": 0.5}, "patch_size": 1},
    ],
)
def test_any_resolution_is_a_resized_model_and_is_saved_like_any_other(
    arguments, make_vit, random_images, forward, tmp_path
):
    model = make_vit(**arguments)
    anywhere = model.any_resolution()
    atol = 0.05 if "dtype" in arguments else 5e-6
    images = random_images()
    np.testing.assert_allclose(forward(anywhere, images), forward(model, images), atol=atol)
    keras_vit.save_checkpoint(model, tmp_path / "model.npz")
    larger = make_vit(seed=1, image_size=(24, 36), **arguments)
    keras_vit.load_checkpoint(larger, tmp_path / "model.npz")
    images = random_images(2, 24, 36)
    expected = forward(anywhere, images)
    np.testing.assert_allclose(forward(larger, images), expected, atol=atol)
    assert {id(w) for w in anywhere.weights} <= {id(w) for w in model.weights}
    anywhere.save(tmp_path / "any.keras")
    again = keras.saving.load_model(tmp_path / "any.keras")
    np.testing.assert_array_equal(forward(again, images), expected)
    assert [weight.path for weight in again.weights] == [weight.path for weight in anywhere.weights]


def test_any_resolution_needs_a_whole_patch_and_weights_that_allow_it(make_vit, random_images):
    for size in ((3, 16), (16, 3)):
        with pytest.raises(ValueError, match=f"one patch, 4 x 4. Received: {size[0]} x"):
            make_vit().any_resolution()(random_images(1, *size))
    for arguments in (
        {"position_embedding": "relative"},
        {"attention": "axial", "classifier": "gap"},
    ):
        with pytest.raises(ValueError, match="one image size"):
            make_vit(**arguments).any_resolution()


BAD = {
    "classifier": ["cls"],
    "position_embedding": ["3d"],
    "position_placement": ["end"],
    "attention": ["linear"],
    "num_layers": [0, 10**7],
    "patch_size": [4.0],
    "image_size": [(16, 16, 3), 32.0, None, (32, 0), 10**12, (32, 2**16)],
    "resnet": [{"layers": (1,)}],
    "gelu": ["relu"],
    "in_channels": [0],
    "register_tokens": [-1, 1.5],
    "hidden_size": [2**40],
    "stochastic_depth_rate": [7.0],
    "dropout_rate": [-1.0],
    "attention_dropout_rate": [float("nan")],
    "layer_norm_epsilon": [float("inf"), 0.0, "1e-6"],
    "num_classes": [3.5, 0],
    "representation_size": [0],
    "head_bias_init": ["0"],
    "remat": ["no"],
    "flash_attention": ["no"],
}


@pytest.mark.parametrize(("name", "value"), [(n, value) for n in BAD for value in BAD[n]])
def test_bad_arguments(name, value, make_vit):
    received = re.escape(f"Received: {name}={value!r}")
    with pytest.raises(ValueError, match=f"`{name}` must .*{received}"):
        make_vit(**{name: value})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 10, "num_heads": 4}, "multiple of `num_heads`"),
        ({"attention": "axial"}, "no class token"),
        ({"image_size": 3}, "at least one patch"),
        *(
            ({"register_tokens": 2, **others}, "Register tokens.*Received")
            for others in (
                {"position_placement": "every"},
                {"position_embedding": "relative"},
                {"attention": "axial", "classifier": "gap"},
            )
        ),
    ],
)
def test_arguments_that_contradict(arguments, message, make_vit):
    with pytest.raises(ValueError, match=message):
        make_vit(**arguments)
