"""DINOv3 in the files of transformers and timm: their numbers, names and configurations."""

import dataclasses
import json
import re
import warnings
from pathlib import Path

import keras
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError
from keras_vit.checkpoints import load as load_module
from keras_vit.checkpoints.torch_layouts import (
    HUGGING_FACE_DINOV2,
    HUGGING_FACE_DINOV3,
    TIMM,
    TIMM_DINOV3,
)
from tests.golden import golden
from tests.keras_vit.small import assert_same, endpoints_of, forward, make_vit, to_numpy

CASES = json.loads((Path(__file__).parents[3] / "golden" / "dinov3.json").read_text())
del CASES["rope"]
pytestmark = pytest.mark.filterwarnings("ignore:.*published under dinov3-license")


def build(case, **overrides):
    sizes = ("patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers", "register_tokens")
    arguments = {name: case["model"][name] for name in sizes} | {"num_classes": None}
    arguments |= {"mlp": "swiglu" if case["model"]["gated_mlp"] else "gelu", "gelu": "erf"}
    arguments |= {"layer_norm_epsilon": 1e-5, "position_embedding": "rope_2d"}
    arguments |= {"image_size": case["image_size"], "classifier": "token_gap"}
    return keras_vit.VisionTransformer(**arguments | overrides)


def arrays_of(case):
    return {n: golden.torch_weight(n, tuple(s), case["seed"]) for n, s in case["arrays"].items()}


def load(case, arrays, folder, model=None, **options):
    save_file(arrays, folder / "model.safetensors")
    model = model or build(case)
    options = options or {name: case[name] for name in ("mean", "std")}
    keras_vit.load_checkpoint(model, folder, **options)
    return model


def refuse(*arguments, **options):
    with pytest.raises(CheckpointError) as error:
        load(*arguments, **options)
    return error.value


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_transformers_and_timm(name, tmp_path):
    case = CASES[name]
    model = load(case, arrays_of(case), tmp_path)
    images = golden.image((case["batch"], *case["image_size"], 3), case["seed"])
    found, tokens = endpoints_of(model, images), np.array(case["last_hidden_state"])
    assert np.abs(found["encoded"] - tokens).max() < 1e-5
    pooled, average = np.split(found["representation"], 2, axis=-1)
    assert np.abs(pooled - case["pooled"]).max() < 1e-5
    # transformers leaves the mean to its users.
    expected = case.get("average", tokens[:, 5:].mean(1))
    assert np.abs(average - expected).max() < 1e-5
    # At another size, as a model of that size; nothing depends on the first.
    larger, wide = build(case, image_size=(48, 64)), np.tile(images, (1, 2, 2, 1))[:, :48, :64]
    larger.set_weights(model.get_weights())
    assert np.abs(forward(model.any_resolution(), wide) - forward(larger, wide)).max() < 1e-5


@pytest.mark.parametrize("name", CASES)
def test_files_are_written_back(name, tmp_path):
    """Bit for bit, but for LayerScale, which was folded."""
    case, half = CASES[name], {"mean": 0.5, "std": 0.5}
    arrays = arrays_of(case)
    model = load(case, arrays, tmp_path, **half)
    layout = model.checkpoint_layout
    assert layout.title == (HUGGING_FACE_DINOV3 if "hf" in name else TIMM_DINOV3).title
    keras_vit.save_checkpoint(model, tmp_path / "b.safetensors", layout)
    keras_vit.load_checkpoint(other := build(case), tmp_path / "b.safetensors", **half)
    assert_same(model, other)
    assert other.checkpoint_layout == layout
    written = load_file(tmp_path / "b.safetensors")
    assert written.keys() == arrays.keys() - {"embeddings.mask_token"}
    for array, value in written.items():
        if "lambda" in array or "gamma" in array:
            assert (value == 1).all()
        elif not any(part in array for part in ("o_proj", "attn.proj", "down_proj", "fc2")):
            assert value.tobytes() == arrays[array].tobytes(), array


def test_biases_that_a_file_may_lack(tmp_path):
    """A new spelling of transformers' names, without and with a bias of keys, both ways."""
    case = CASES["hf"]
    table = {n: own.replace("layer.", "trunk.") for n, own in HUGGING_FACE_DINOV3.tables[0].items()}
    table["MultiHeadDotProductAttention_1/key/bias"] = "trunk.{}.attention.k_bias"
    layout = dataclasses.replace(HUGGING_FACE_DINOV3, title="a new one", tables=(table,))
    arrays = {n.replace("layer.", "trunk.", 1): a for n, a in arrays_of(case).items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_module, "LAYOUTS", (layout,))
        model = load(case, arrays, tmp_path)
        key = model.blocks[1].attention.key
        assert not to_numpy(key.bias).any()
        keras_vit.save_checkpoint(model, tmp_path / "b.safetensors", layout)
        assert not [n for n in load_file(tmp_path / "b.safetensors") if "k_bias" in n]
        key.bias.assign(np.ones(48))
        keras_vit.save_checkpoint(model, tmp_path / "b.safetensors", layout)
        written = load_file(tmp_path / "b.safetensors")
        assert (written["trunk.1.attention.k_bias"] == 1).all()
        assert not written["trunk.0.attention.k_bias"].any()
        keras_vit.load_checkpoint(
            other := build(case), tmp_path / "b.safetensors", mean=0.5, std=0.5
        )
        np.testing.assert_array_equal(other.blocks[1].attention.key.bias, np.ones(48))
        del arrays["trunk.1.attention.q_proj.bias"]
        assert refuse(case, arrays, tmp_path).missing == ("trunk.1.attention.q_proj.bias",)
    with pytest.raises(CheckpointError, match="no place for a bias of keys"):
        keras_vit.save_checkpoint(model, tmp_path / "c.safetensors", TIMM_DINOV3)
    # As the configuration of 7B has it, and against a configuration.
    plain = {n: a for n, a in arrays_of(case).items() if "q_proj.bias" not in n}
    assert not to_numpy(load(case, plain, tmp_path).blocks[0].attention.query.bias).any()
    (tmp_path / "config.json").write_text(json.dumps(case["config"]))
    assert len(refuse(case, plain, tmp_path).missing) == 3


META = {"reg_token": "storage_tokens", "gamma_": "ls", "fc1_g": "w1", "fc1_x": "w2"}


@pytest.mark.parametrize("name", [name for name in CASES if "timm" in name])
def test_names_of_meta(name, tmp_path):
    """The same arrays under Meta's names, with a bias of keys that its mask takes away."""
    case, arrays = CASES[name], {"mask_token": np.ones((1, 48), "float32")}
    for own, array in arrays_of(case).items():
        for old, new in META.items():
            own = own.replace(old, new)
        own = re.sub(r"(ls\d)$", r"\1.gamma", own)
        arrays[own.replace("mlp.fc2", "mlp.w3") if case["model"]["gated_mlp"] else own] = array
    for block in range(case["model"]["num_layers"]):
        parts = [arrays.pop(f"blocks.{block}.attn.{each}_bias", None) for each in "qv"]
        if parts[0] is not None:
            bias = np.concatenate([parts[0], np.full(48, np.nan, "float32"), parts[1]])
            arrays[f"blocks.{block}.attn.qkv.bias"] = bias
            mask = np.repeat(np.array([1, 0, 1], "float32"), 48)
            arrays[f"blocks.{block}.attn.qkv.bias_mask"] = mask
    channels = 48 // case["model"]["num_heads"] // 4
    periods = 100 ** (np.arange(channels) / channels)
    arrays["rope_embed.periods"] = periods.astype(ml_dtypes.bfloat16).astype("float32")
    model = load(case, arrays, tmp_path)
    images = golden.image((case["batch"], *case["image_size"], 3), case["seed"])
    assert np.abs(forward(model, images)[:, :48] - case["pooled"]).max() < 1e-5
    assert model.license == "dinov3-license"
    with pytest.raises(CheckpointError, match="read, not written: use HUGGING_FACE_DINOV3"):
        keras_vit.save_checkpoint(model, tmp_path / "b.safetensors", model.checkpoint_layout)
    arrays["rope_embed.periods"] *= 2
    assert "positions of base 100" in str(refuse(case, arrays, tmp_path))


@pytest.mark.filterwarnings("ignore:.*asks for classifier=.token")
def test_a_classifier_of_timms_mean_of_patches(tmp_path):
    case = CASES["timm"]
    kernel = np.random.default_rng(0).normal(size=(3, 48)).astype("float32")
    bias = kernel[:, 0].copy()
    arrays = arrays_of(case) | {"head.weight": kernel, "head.bias": bias}
    images = golden.image((case["batch"], *case["image_size"], 3), case["seed"])
    expected = np.array(case["average"]) @ kernel.T + bias
    model = load(case, arrays, tmp_path, build(case, num_classes=3))
    np.testing.assert_allclose(forward(model, images), expected, atol=1e-4)
    # One of the class token has another place, which nothing shows.
    (tmp_path / "config.json").write_text(json.dumps({"global_pool": "token"}))
    assert refuse(case, arrays, tmp_path, build(case, num_classes=3)).mis_shaped


def test_configurations_of_transformers(tmp_path):
    processor = {"image_mean": CASES["hf"]["mean"], "image_std": CASES["hf"]["std"]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    for name in ("hf", "hf_gated"):
        case = CASES[name]
        # In a file, and as it is called in memory.
        names = {"hf": "layer.", "hf_gated": "model.layer."}
        arrays = {n.replace("layer.", names[name], 1): a for n, a in arrays_of(case).items()}
        save_file(arrays, tmp_path / "model.safetensors")

        def load_with(model, config=case["config"], **changes):
            (tmp_path / "config.json").write_text(json.dumps(config | changes))
            keras_vit.load_checkpoint(model, tmp_path)

        model = build(case, gelu="tanh" if "gated" in name else "erf")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            load_with(model)
        (only,) = said
        assert "published under dinov3-license" in str(only.message)
        images = golden.image((2, *case["image_size"], 3), case["seed"])
        pooled = forward(model, images)[:, :48]
        assert np.abs(pooled - case["pooled"]).max() < 1e-5
        for changes, message in (
            ({"rope_theta": 1e4}, "rope_theta=100. The file's configuration says 10000"),
            ({"num_attention_heads": 6}, "says num_heads=6, the model has num_heads=3"),
            ({"hidden_act": "relu"}, "to be one that gates" if "gated" in name else "to be a GELU"),
            ({"use_gated_mlp": True, "hidden_act": "gelu"}, "one of silu.* says 'gelu'"),
        ):
            with pytest.raises(CheckpointError, match=message):
                load_with(model, **changes)
        with pytest.warns(UserWarning, match="asks for layer_norm_epsilon=1e-05"):
            load_with(build(case, layer_norm_epsilon=1e-6))


def test_positions_that_no_array_shows_are_compared(tmp_path):
    case = CASES["timm_gated"]
    error = refuse(case, arrays_of(case), tmp_path, build(case, position_embedding="none"))
    assert "says position_embedding='rope_2d', the model has position_embedding='none'" in str(
        error
    )
    model = build(case)
    for layout, written in (
        (None, model),
        (None, make_vit(mlp="swiglu")),
        (TIMM, model),
        (TIMM_DINOV3, build(case, position_embedding="none")),
    ):
        path = tmp_path / ("b.safetensors" if layout else "a.npz")
        with pytest.raises(
            ValueError, match=r"has a place for\. .*position_embedding=.*model\.save"
        ):
            keras_vit.save_checkpoint(written, path, layout)
        assert not path.exists()
    with pytest.warns(UserWarning, match="asks for classifier='token_gap'"):
        load(case, arrays_of(case), tmp_path, build(case, classifier="token"))
    # A gated MLP is not another's.
    assert (
        "blocks.0.mlp.fc1_g.bias"
        in refuse(case, arrays_of(case), tmp_path, build(CASES["timm"])).left_over
    )


def test_the_license_stays_with_the_weights(tmp_path):
    case = CASES["timm"]
    with pytest.warns(UserWarning, match="under dinov3-license, or derive .* not allow every use"):
        model = load(case, arrays_of(case), tmp_path)
    model.save(tmp_path / "m.keras")
    saved = keras.saving.load_model(tmp_path / "m.keras")
    assert saved.license == "dinov3-license" and make_vit().license is None
    assert keras_vit.Segmenter(saved, 2).license == "dinov3-license"
    copy = build(case, num_classes=3)
    keras_vit.checkpoints.load_weights(copy, tmp_path / "m.keras")
    assert copy.license == "dinov3-license"
    np.testing.assert_array_equal(
        copy.blocks[0].attention.key.kernel, saved.blocks[0].attention.key.kernel
    )


@pytest.mark.parametrize("layout", [TIMM, HUGGING_FACE_DINOV2])
def test_gated_mlps_of_dinov2_are_fused_in_files_and_come_back(layout, tmp_path):
    """`x * silu(gate)` of one array, the gate first, as DINOv2-giant has it."""
    model = make_vit(mlp="swiglu", classifier="token", num_classes=None)
    keras_vit.save_checkpoint(model, tmp_path / "a.safetensors", layout)
    name = "blocks.1.mlp.fc1" if layout is TIMM else "dinov2.encoder.layer.1.mlp.weights_in"
    mlp, weight = model.blocks[1].mlp, load_file(tmp_path / "a.safetensors")[f"{name}.weight"]
    expected = np.concatenate([to_numpy(each.kernel).T for each in (mlp.gate_dense, mlp.up_dense)])
    np.testing.assert_array_equal(weight, expected)
    other = make_vit(1, mlp="swiglu", classifier="token", num_classes=None)
    keras_vit.load_checkpoint(other, tmp_path / "a.safetensors", mean=0.5, std=0.5)
    assert_same(model, other)
