import json
import warnings

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError

# The reference took images in [-1, 1].
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


@pytest.fixture
def case(cases):
    return cases["hf"]


@pytest.fixture
def arrays(case, golden):
    return golden.checkpoint(case)


@pytest.fixture
def check(case, golden, build_case, forward):
    """Returns a function that loads a path and compares the logits with the reference's."""

    def check(path, skip=(), **overrides):
        model = build_case(case, **overrides)
        keras_vit.load_checkpoint(model, path, skip, **HALF)
        expected = np.array(case["logits"])
        logits = forward(model, golden.images_of(case))
        assert np.abs(logits - expected).max() < 2e-5 * expected.std()

    return check


def renamed(name):
    """The same array in the names of transformers 5."""
    for old, new in {
        "encoder.layer.": "layers.",
        "attention.attention.query": "attention.q_proj",
        "attention.attention.key": "attention.k_proj",
        "attention.attention.value": "attention.v_proj",
        "attention.output.dense": "attention.o_proj",
        "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
    }.items():
        name = name.replace(old, new)
    return name


def test_names_of_transformers_5(arrays, check, tmp_path):
    save_file({renamed(n): a for n, a in arrays.items()}, tmp_path / "model.safetensors")
    check(tmp_path / "model.safetensors")


def test_directory_of_shards(arrays, check, tmp_path):
    names = sorted(arrays)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({n: arrays[n] for n in part}, tmp_path / file)
    index = {"weight_map": {n: file for file, part in shards.items() for n in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    check(tmp_path)


def test_model_without_classifier(arrays, case, build_case, tmp_path):
    bare = {n.removeprefix("vit."): a for n, a in arrays.items() if n.startswith("vit.")}
    save_file(bare, tmp_path / "model.safetensors")
    headless = build_case(case, num_classes=None)
    keras_vit.load_checkpoint(headless, tmp_path / "model.safetensors", **HALF)
    with pytest.raises(CheckpointError) as error:
        keras_vit.load_checkpoint(build_case(case), tmp_path / "model.safetensors", **HALF)
    assert sorted(error.value.missing) == ["classifier.bias", "classifier.weight"]
    assert 'skip=("head",)' in str(error.value)


def test_pooler_is_the_hidden_layer(arrays, case, build_case, to_numpy, tmp_path):
    weight = np.random.default_rng(0).standard_normal((48, 48)).astype("float32")
    pooled = {
        **arrays,
        "vit.pooler.dense.weight": weight,
        "vit.pooler.dense.bias": np.zeros(48, "float32"),
    }
    save_file(pooled, tmp_path / "model.safetensors")
    model = build_case(case, representation_size=48)
    keras_vit.load_checkpoint(model, tmp_path / "model.safetensors", **HALF)
    np.testing.assert_array_equal(to_numpy(model.get_layer("pre_logits").kernel), weight.T)
    plain = build_case(case)
    with pytest.raises(CheckpointError, match='skip=\\("pre_logits",\\)'):
        keras_vit.load_checkpoint(plain, tmp_path / "model.safetensors", **HALF)
    keras_vit.load_checkpoint(plain, tmp_path / "model.safetensors", skip=("pre_logits",), **HALF)


@pytest.mark.parametrize(
    ("overrides", "warns"),
    [({}, None), ({"gelu": "tanh"}, "gelu='erf'"), ({"layer_norm_epsilon": 1e-6}, "1e-12")],
)
def test_config_is_compared(overrides, warns, arrays, case, build_case, tmp_path):
    save_file(arrays, tmp_path / "model.safetensors")
    config = {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = build_case(case, **overrides)
    if warns:
        with pytest.warns(UserWarning, match=warns):
            keras_vit.load_checkpoint(model, tmp_path, **HALF)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            keras_vit.load_checkpoint(model, tmp_path, **HALF)


def test_heads_must_agree(arrays, case, build_case, tmp_path):
    """No array's shape shows the number of heads."""
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 3}))
    with pytest.raises(CheckpointError, match="num_heads=3"):
        keras_vit.load_checkpoint(build_case(case), tmp_path, **HALF)


def test_rectangle_of_the_config(arrays, case, build_case, to_numpy, tmp_path):
    """4 x 4 patches and 2 x 8 are as many: config.json tells them apart."""
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"image_size": [32, 128], "patch_size": 16}))
    model = build_case(case, image_size=(32, 128))
    keras_vit.load_checkpoint(model, tmp_path, **HALF)
    table = to_numpy(model.get_layer("position_embedding").embedding)
    np.testing.assert_array_equal(table, arrays["vit.embeddings.position_embeddings"])


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "{",
        '{"image_size": [1, "a"], "patch_size": 2}',
        '{"image_size": [1], "patch_size": 0}',
    ],
)
def test_damaged_config(text, arrays, case, build_case, tmp_path):
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        keras_vit.load_checkpoint(build_case(case), tmp_path, **HALF)


def test_model_without_a_place(case, arrays, make_vit, tmp_path):
    save_file(arrays, tmp_path / "model.safetensors")
    model = make_vit(classifier="map")
    with pytest.raises(CheckpointError, match="no place for the model's MAPHead_0/probe"):
        keras_vit.load_checkpoint(model, tmp_path / "model.safetensors", **HALF)
