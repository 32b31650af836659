import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import layers
from keras_vit.layers.mlp import MLPS
from keras_vit.models.argument_ranges import CHECKS
from tests.keras_vit import small
from tests.keras_vit.small import endpoints_of, forward, gradients, make_images, make_vit, to_numpy
from tests.tiny_vit import tiny_vit

RELATIVE = {"position_embedding": "relative"}
AXIAL = {"attention": "axial", "classifier": "gap"}
HYBRID = {"resnet": {"num_layers": (1,), "width_factor": 0.5}, "patch_size": 1}
RATES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
OF_HYBRID = {"LayerNormalization": 1e-3, "GroupNormalization": 1e-6}


def logits_from_encoded(model, encoded):
    head = model.get_layer("head")
    if model.arguments["classifier"] == "distilled":
        both = zip(
            (head, model.get_layer("head_distillation")), np.split(encoded, 2, -1), strict=True
        )
        return sum(each @ to_numpy(own.kernel) + to_numpy(own.bias) for own, each in both) / 2
    return encoded @ to_numpy(head.kernel) + to_numpy(head.bias)


@pytest.mark.rows({}, AXIAL, HYBRID, long=[RELATIVE, {"classifier": "map"}])
def test_remat_leaves_the_gradients(kind):
    # With torch, dropout has other masks under remat: docs/models.md.
    rate = 0.0 if small.BACKEND == "torch" else 0.3
    arguments = kind | dict.fromkeys(RATES, rate)
    plain, remat = make_vit(**arguments), make_vit(remat=True, **arguments)
    for source, target in zip(plain.variables, remat.variables, strict=True):
        target.assign(np.asarray(source))
    expected = gradients(plain, make_images(), training=True)
    result = gradients(remat, make_images(), training=True)
    path = next(iter(expected))
    moved = np.abs(expected[path] - gradients(plain, make_images())[path]).max()
    assert moved > 1e-3 or (rate == 0 and moved < 1e-6)
    for (path, gradient), other in zip(result.items(), expected.values(), strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-6, err_msg=path)


@pytest.mark.skipif(small.BACKEND != "torch", reason="PyTorch's graphs: make test-torch")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_torch_exports_a_graph_of_any_number_of_images(dtype):
    import torch

    model, images = make_vit(dtype=dtype).eval(), torch.from_numpy(make_images(4))
    sizes = ({0: torch.export.Dim("images")},)
    graph = torch.export.export(model, (images,), dynamic_shapes=(sizes,)).module()
    with torch.no_grad():
        for count in (2, 4):
            found, expected = graph(images[:count]), model(images[:count])
            np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=1e-5)


@pytest.mark.parametrize(
    "classifier", ["token", "token_gap", "gap", "map", "unpooled", "distilled"]
)
def test_logits_are_a_function_of_every_endpoint(classifier):
    hidden = None if classifier == "distilled" else 6
    model = make_vit(classifier=classifier, dropout_rate=0.5, representation_size=hidden)
    images = make_images(2)
    found = endpoints_of(model, images)
    np.testing.assert_allclose(forward(model, images), found["logits"], atol=1e-6)
    for name in ("stem", "embedded", "block_00", "block_01", "encoded", "representation"):
        rest = keras.Model(model.endpoints[name], model.output)
        np.testing.assert_allclose(forward(rest, found[name]), found["logits"], atol=1e-6)
        np.testing.assert_allclose(forward(model.up_to(name), images), found[name], atol=1e-6)
    # One call has one mask of dropout for all endpoints.
    ends = [model.endpoints[name] for name in ("encoded", "representation")]
    encoded, pooled = map(to_numpy, keras.Model(model.input, ends)(images, training=True))
    assert np.abs(encoded - found["encoded"]).max() > 0.1
    expected = forward(keras.Model(*ends), encoded)
    np.testing.assert_allclose(pooled, expected, atol=1e-6)


@pytest.mark.rows(lambda: make_vit(**AXIAL), lambda: make_vit(**HYBRID), small.make_resnet)
def test_images_are_channels_last_whatever_keras_is_told(make):
    expected = make()
    try:
        keras.config.set_image_data_format("channels_first")
        found = make()
    finally:
        keras.config.set_image_data_format("channels_last")
    images = make_images(1, *found.input_shape[1:3])
    np.testing.assert_array_equal(forward(found, images), forward(expected, images))


def test_initial_values_and_dropout_rates():
    rates = dict(zip(RATES, (0.1, 0.2, 0.2), strict=True))
    model = tiny_vit(num_layers=5, head_bias_init=-10.0, **rates)
    head, token = model.get_layer("head"), model.get_layer("class_token").token
    for weight, value in ((head.kernel, 0), (head.bias, -10), (token, 0)):
        np.testing.assert_array_equal(to_numpy(weight), value)
    assert model.get_layer("dropout").rate == 0.1
    for block, depth in zip(model.blocks, [0, 0.05, 0.1, 0.15, 0.2], strict=True):
        assert block.attention.dropout.rate == 0.2 and block.attention_dropout.rate == 0.1
        assert block.mlp.hidden_dropout.rate == block.mlp.output_dropout.rate == 0.1
        assert block.attention_depth.rate == block.mlp_depth.rate == pytest.approx(depth)


def test_endpoints():
    model = make_vit(representation_size=12)
    values = endpoints_of(model, make_images())
    tokens = dict.fromkeys(("embedded", "block_00", "block_01", "encoded"), (17, 16))
    expected = {"stem": (4, 4, 16), **tokens, "representation": (12,), "logits": (5,)}
    assert list(model.endpoints) == list(expected)
    assert {name: value.shape[1:] for name, value in values.items()} == expected


@pytest.mark.parametrize(
    "classifier", ["gap", "unpooled", "token_gap", "map", "token", "distilled"]
)
def test_classifiers_read_no_registers(classifier):
    model = make_vit(classifier=classifier, register_tokens=3)
    values = endpoints_of(model, make_images())
    tokens = values["encoded"]
    patches = tokens[:, -16:]
    first, mean = tokens[:, 0], patches.mean(1)
    pooled = {"gap": mean, "unpooled": patches, "token": first}
    pooled["token_gap"] = np.concatenate([first, mean], axis=-1)
    pooled["distilled"] = np.concatenate([first, tokens[:, 1]], axis=-1)
    if classifier == "map":
        pooled["map"] = to_numpy(model.get_layer("pool")(patches))
    pooled = pooled[classifier]
    np.testing.assert_allclose(values["representation"], pooled, atol=2e-6)
    np.testing.assert_allclose(values["logits"], logits_from_encoded(model, pooled), atol=5e-6)


@pytest.mark.parametrize(("placement", "tables"), [("stem", 1), ("every", 3), ("shared", 1)])
def test_placements(placement, tables):
    model = make_vit(position_placement=placement, num_layers=3)
    layers = [layer for layer in model.layers if layer.name.startswith("position_embedding")]
    assert len(layers) == tables
    plain = make_vit(position_embedding="none", num_layers=3)
    for layer in plain.layers:
        layer.set_weights(model.get_layer(layer.name).get_weights())
    blocks = endpoints_of(plain, make_images())["embedded"]
    for index, block in enumerate(plain.blocks):
        if placement != "stem" or index == 0:
            blocks = blocks + to_numpy(layers[index if tables == 3 else 0].embedding)
        blocks = to_numpy(block(blocks))
    expected = logits_from_encoded(model, to_numpy(plain.get_layer("encoder_norm")(blocks))[:, 0])
    np.testing.assert_allclose(forward(model, make_images()), expected, atol=5e-6)


@pytest.mark.rows(
    {"dtype": "mixed_bfloat16"},
    {"classifier": "map"},
    {"position_embedding": "sincos_2d"},
    {"position_embedding": "learned_2d", "classifier": "token_gap", "register_tokens": 3},
    long=[
        {"classifier": "gap", "position_placement": "every"},
        {"classifier": "distilled", "dropout_rate": 0.1},
        {"position_placement": "shared", "classifier": "unpooled"},
        {"resnet": {"num_layers": (1, 1), "width_factor": 0.5}, "patch_size": 1},
    ],
)
def test_any_resolution_is_a_resized_model_and_is_saved_like_any_other(arguments, tmp_path):
    model = make_vit(**arguments)
    anywhere = model.any_resolution()
    atol = 0.05 if "dtype" in arguments else 5e-6
    results = (forward(each, make_images()) for each in (anywhere, model))
    np.testing.assert_allclose(*results, atol=atol)
    keras_vit.save_checkpoint(model, tmp_path / "model.npz")
    larger = make_vit(seed=1, image_size=(24, 36), **arguments)
    keras_vit.load_checkpoint(larger, tmp_path / "model.npz")
    images = make_images(2, 24, 36)
    expected = forward(anywhere, images)
    np.testing.assert_allclose(forward(larger, images), expected, atol=atol)
    if small.BACKEND == "tensorflow":
        import tensorflow as tf

        # Eagerly, rows and columns are numbers.
        graph = tf.function(anywhere, [tf.TensorSpec((None, None, None, 3))], autograph=False)
        np.testing.assert_allclose(graph(images), expected, atol=atol)
    assert {id(w) for w in anywhere.weights} <= {id(w) for w in model.weights}
    anywhere.save(tmp_path / "any.keras")
    again = keras.saving.load_model(tmp_path / "any.keras")
    np.testing.assert_array_equal(forward(again, images), expected)
    assert [weight.path for weight in again.weights] == [weight.path for weight in anywhere.weights]


def test_any_resolution_needs_a_whole_patch_and_weights_that_allow_it():
    for size in ((3, 16), (16, 3)):
        with pytest.raises(ValueError, match=f"one patch, 4 x 4. Received: {size[0]} x"):
            make_vit().any_resolution()(make_images(1, *size))
    for arguments in (RELATIVE, AXIAL):
        with pytest.raises(ValueError, match="one image size"):
            make_vit(**arguments).any_resolution()


def test_a_resnet_has_64_channels_times_its_factor_which_is_1():
    resnet = {"num_layers": (1,)}
    for given, factor in (({}, 1), ({"width_factor": 0.5}, 0.5)):
        model = make_vit(resnet=resnet | given, patch_size=1)
        assert model.arguments["resnet"] == {"num_layers": (1,), "width_factor": factor}
        kernels = [to_numpy(each).shape for each in model.weights if each.path.endswith("kernel")]
        assert kernels[0] == (7, 7, 3, 64 * factor)


@pytest.mark.rows(
    # Layer normalization has the model's own, group normalization of version 1 has its own.
    (lambda: make_vit(**HYBRID, classifier="map", layer_norm_epsilon=1e-3), OF_HYBRID),
    (lambda: make_vit(classifier="map"), {"LayerNormalization": 1e-6}),
    (lambda: small.make_resnet(num_layers=(1, 1)), {"GroupNormalization": 1e-5}),
    (small.make_axial, {"BatchNormalization": 1e-5}),
)
def test_epsilons_which_golden_logits_hardly_feel(make, expected):
    layers = {type(each).__name__: each for each in make()._flatten_layers()}
    norms = [each for each in make()._flatten_layers() if type(each).__name__ in expected]
    assert {(type(each).__name__, each.epsilon) for each in norms} == set(expected.items())
    assert {name for name in layers if "Normalization" in name} == set(expected)


BAD = {
    **dict.fromkeys(("classifier", "position_embedding", "position_placement"), ("other",)),
    **dict.fromkeys(("attention", "gelu", "mlp"), ("other",)),
    **dict.fromkeys(("in_channels", "representation_size"), (0,)),
    **dict.fromkeys(("remat", "flash_attention"), ("no", 2)),
    "num_layers": [0, 10**7],
    "image_size": [(16, 16, 3), 32.0, None, (32, 0), 10**12, (32, 2**16)],
    "layer_norm_epsilon": [float("inf"), 0.0, "1e-6"],
}
BAD |= {"patch_size": [4.0], "resnet": [{"layers": (1,)}], "register_tokens": [-1, 1.5]}
BAD |= {"hidden_size": [2**40], "num_classes": [3.5, 0], "head_bias_init": ["0"]}
BAD |= {name: [rate] for name, rate in zip(RATES, (-1.0, float("nan"), 7.0), strict=True)}


def received(name, value):
    return f"`{name}` must .*" + re.escape(f"Received: {name}={value!r}")


@pytest.mark.rows(
    *(({name: value}, received(name, value)) for name in BAD for value in BAD[name]),
    ({"hidden_size": 10, "num_heads": 4}, "multiple of `num_heads`"),
    ({"attention": "axial"}, "no class token"),
    ({"classifier": "distilled", "representation_size": 8}, "two linear heads.*size=8"),
    ({"classifier": "distilled", **RELATIVE}, "two linear heads.*'relative'"),
    ({"image_size": 3}, "at least one patch"),
    ({"register_tokens": 2, "position_placement": "every"}, "Register tokens.*Received"),
    ({"register_tokens": 2, **RELATIVE}, "Register tokens.*Received"),
    ({"register_tokens": 2, **AXIAL}, "Register tokens.*Received"),
    ({"flash_attention": True, **RELATIVE}, "neither relative positions.*'relative'"),
    ({"flash_attention": True, "attention_dropout_rate": 0.1}, "nor dropout.*Received.*0.1"),
)
def test_bad_arguments_and_those_that_contradict(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_vit(**arguments)


def test_an_axial_model_names_its_endpoints_and_has_no_attention():
    model = make_vit(**AXIAL)
    assert model.num_prefix_tokens == 0
    with pytest.raises(ValueError, match=r"Expected names of stem, .*Received: block_99"):
        model.up_to("block_99")
    with pytest.raises(ValueError, match="one map for every row and column"):
        model.up_to("block_00/attention")


def test_a_block_takes_its_mlp_from_the_table(monkeypatch):
    class Doubled(layers.MLP):
        def call(self, tokens, training=False):
            return 2 * super().call(tokens, training)

    monkeypatch.setitem(MLPS, "doubled", Doubled)
    block, other = (layers.EncoderBlock(2, 8, mlp_type=name) for name in ("gelu", "doubled"))
    tokens = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    block.build(tokens.shape)
    other.build(tokens.shape)
    other.set_weights(block.get_weights())
    attended = tokens + to_numpy(block.attention(block.attention_norm(tokens)))
    added = to_numpy(block.mlp(block.mlp_norm(attended)))
    np.testing.assert_allclose(to_numpy(block(tokens)), attended + added, atol=1e-6)
    np.testing.assert_allclose(to_numpy(other(tokens)), attended + 2 * added, atol=1e-6)
    assert other.get_config()["mlp_type"] == "doubled"

    monkeypatch.setitem(CHECKS, "mlp", ("be a row", str))
    model = make_vit(mlp="doubled")
    again = keras_vit.VisionTransformer.from_config(model.get_config())
    for each in (model, again):
        assert each.arguments["mlp"] == "doubled"
        assert {type(block.mlp) for block in each.blocks} == {Doubled}
