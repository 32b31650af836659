"""Variations of the files of timm and Hugging Face; their logits are among the golden cases."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights
from keras_vit.checkpoints.npz_and_safetensors import open_source

# The images that most references took: [-1, 1].
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
DINOV2 = {"hf_dinov2": "dinov2.", "hf_dinov2_registers": "dinov2_with_registers."}
RENAMED = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
}
RENAMED_VIT = {
    **RENAMED,
    "encoder.layer.": "layers.",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


def replaced(arrays, names):
    """Returns the arrays under other names."""
    result = {}
    for name, array in arrays.items():
        for old, new in names.items():
            name = name.replace(old, new)
        result[name] = array
    return result


@pytest.fixture
def load(cases, build_case, tmp_path):
    """Returns a function that loads arrays as the file of a golden case and returns the model."""

    def load(name, arrays, skip=(), **overrides):
        save_file(arrays, tmp_path / "model.safetensors")
        model = build_case(cases[name], **overrides)
        normalization = IMAGENET if name in DINOV2 else HALF
        keras_vit.load_checkpoint(model, tmp_path / "model.safetensors", skip, **normalization)
        return model

    return load


@pytest.fixture
def refuse(load):
    """Returns a function that does the same and returns the error."""

    def refuse(*args, **overrides):
        with pytest.raises(CheckpointError) as error:
            load(*args, **overrides)
        return error.value

    return refuse


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("hf", RENAMED_VIT),
        ("hf_dinov2", RENAMED),
        ("hf_dinov2_registers", RENAMED),
        ("hf_siglip", {"vision_model.": ""}),
    ],
)
def test_names_of_transformers_5(name, names, cases, golden, load, assert_logits):
    arrays = golden.checkpoint(cases[name])
    tower = {n: a for n, a in arrays.items() if not n.startswith(("text_model", "logit_"))}
    assert_logits(load(name, replaced(tower, names)), cases[name])


def test_directory_of_shards(cases, golden, build_case, assert_logits, tmp_path):
    arrays = golden.checkpoint(cases["hf"])
    shards = {"a.safetensors": sorted(arrays)[::2], "b.safetensors": sorted(arrays)[1::2]}
    for file, part in shards.items():
        save_file({n: arrays[n] for n in part}, tmp_path / file)
    index = {"weight_map": {n: file for file, part in shards.items() for n in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    model = build_case(cases["hf"])
    keras_vit.load_checkpoint(model, tmp_path, **HALF)
    assert_logits(model, cases["hf"])


def test_model_without_classifier(cases, golden, load, refuse):
    arrays = golden.checkpoint(cases["hf"])
    bare = {n.removeprefix("vit."): a for n, a in arrays.items() if n.startswith("vit.")}
    load("hf", bare, num_classes=None)
    error = refuse("hf", bare)
    assert sorted(error.missing) == ["classifier.bias", "classifier.weight"]
    assert 'skip=("head",)' in str(error)


@pytest.mark.parametrize("name", DINOV2)
def test_dinov2_without_classifier(name, cases, golden, load, forward):
    """`Dinov2Model` pools the class token: the first half of the classifier's input."""
    arrays = golden.checkpoint(cases[name])
    whole = load(name, arrays, skip=("head",), num_classes=None)
    bare = {n.removeprefix(DINOV2[name]): a for n, a in arrays.items() if "classifier" not in n}
    pooled = load(name, bare, num_classes=None, classifier="token")
    images = golden.images_of(cases[name])
    np.testing.assert_allclose(forward(pooled, images), forward(whole, images)[:, :48], atol=2e-5)


def test_pooler_is_the_hidden_layer(cases, golden, load, refuse, to_numpy):
    weight = np.random.default_rng(0).standard_normal((48, 48)).astype("float32")
    pooled = {
        **golden.checkpoint(cases["hf"]),
        "vit.pooler.dense.weight": weight,
        "vit.pooler.dense.bias": np.zeros(48, "float32"),
    }
    model = load("hf", pooled, representation_size=48)
    np.testing.assert_array_equal(to_numpy(model.get_layer("pre_logits").kernel), weight.T)
    assert 'skip=("pre_logits",)' in str(refuse("hf", pooled))
    load("hf", pooled, skip=("pre_logits",))
    load("hf", pooled, skip=("pooler",))


def test_rectangle_of_the_config(cases, golden, load, positions, tmp_path):
    """4 x 4 patches and 2 x 8 are as many: config.json tells them apart."""
    arrays = golden.checkpoint(cases["hf"])
    table = arrays["vit.embeddings.position_embeddings"]
    for size, equal in (([32, 128], True), ([64, 64], False)):
        (tmp_path / "config.json").write_text(json.dumps({"image_size": size, "patch_size": 16}))
        model = load("hf", arrays, image_size=(32, 128))
        assert np.array_equal(positions(model), table) == equal


@pytest.mark.parametrize("prefix", ["vision_model.", ""])
def test_siglips_head_is_not_the_classifier(prefix, cases, golden, load, to_numpy, tmp_path):
    """Their module `head` is our `MAPHead_0`; `skip` and transfer call the logits head."""
    arrays = golden.checkpoint(cases["hf_siglip"])
    tower = {n: a for n, a in arrays.items() if n.startswith("vision_model.")}
    tower = replaced(tower, {"vision_model.": prefix})
    model = load("hf_siglip", tower, skip=("head",), num_classes=4)
    # As transformers 5 writes it.
    processor = {"image_processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}}
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    other = load("hf_siglip", tower, skip=("head",), num_classes=4)
    load_weights(other, tmp_path)
    for each in (model, other):
        probe = to_numpy(each.get_layer("pool").probe)
        np.testing.assert_array_equal(probe, tower[f"{prefix}head.probe"])


def test_poolings_of_another_kind_are_refused(cases, golden, refuse):
    error = refuse("hf", golden.checkpoint(cases["hf"]), classifier="map")
    assert "no place for the model's MAPHead_0/probe" in str(error)
    error = refuse("hf_siglip", golden.checkpoint(cases["hf_siglip"]), classifier="gap")
    assert all(name.startswith("vision_model.head.") for name in error.left_over)
    case = "hf_siglip_classifier"
    assert 'classifier="gap"' in str(refuse(case, golden.checkpoint(cases[case]), classifier="map"))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floating_point_types(dtype, cases, golden, load, to_numpy):
    arrays = {n: a.astype(dtype) for n, a in golden.checkpoint(cases["timm"]).items()}
    expected = arrays["head.weight"].T.astype("float32")
    kernel = to_numpy(load("timm", arrays).get_layer("head").kernel)
    np.testing.assert_array_equal(kernel, expected)


@pytest.mark.parametrize("name", DINOV2)
def test_distillation_and_gated_mlps_are_left_over(name, cases, golden, refuse):
    arrays = golden.checkpoint(cases["timm"])
    error = refuse("timm", {**arrays, "dist_token": arrays["cls_token"]})
    assert error.left_over == ("dist_token",)
    arrays = golden.checkpoint(cases[name])
    mlp = DINOV2[name] + "encoder.layer.0.mlp."
    gated = {n: a for n, a in arrays.items() if not n.startswith(mlp)}
    gated[f"{mlp}weights_in.weight"] = np.zeros((128, 48), "float32")
    assert f"{mlp}weights_in.weight" in refuse(name, gated).left_over
    doubled = arrays[f"{mlp}fc1.weight"].repeat(2, axis=0)
    assert refuse(name, {**arrays, f"{mlp}fc1.weight": doubled}).mis_shaped


def test_what_pretraining_alone_needs_is_left_and_a_layer_scale_of_no_layer_is_not(
    cases, golden, load, refuse
):
    arrays = golden.checkpoint(cases["dinov2"])
    load("dinov2", {**arrays, "mask_token": np.ones((1, 48), "float32")})
    error = refuse("dinov2", {**arrays, "blocks.2.ls1.gamma": np.ones(1, "float32")})
    assert error.left_over == ("blocks.2.ls1.gamma",)


@pytest.mark.parametrize(("case", "mark"), [("dinov2", "ls2.gamma"), ("hf_dinov2", "lambda1")])
def test_a_layer_scale_that_some_branches_lack_is_refused(case, mark, cases, golden, refuse):
    arrays = golden.checkpoint(cases[case])
    name = max(name for name in arrays if name.endswith(mark))
    del arrays[name]
    assert refuse(case, arrays).missing == (name,)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_args": {"img_size": [24, 12]}}, (6, 3)),
        ({"pretrained_cfg": {"input_size": [3, 24, 12]}}, (6, 3)),
        ({"input_size": [3, 24, 12]}, (6, 3)),
        # Of pre-training at another size than the file's.
        ({"pretrained_cfg": {"input_size": [3, 16, 16]}}, None),
        ({"image_size": [24, 12], "patch_size": [4, 4]}, (6, 3)),
        ({"image_size": [24, 12], "patch_size": 4}, (6, 3)),
        ({"image_size": 24, "patch_size": 4}, None),
        ({"vision_config": {"image_size": [24, 12], "patch_size": 4}}, (6, 3)),
        ({"image_size": 16, "patch_size": 4}, (4, 4)),
        ({"model_args": {"img_size": 16}}, (4, 4)),
    ],
)
def test_the_grid_of_a_configuration(config, expected, tmp_path):
    entries = 17 if expected == (4, 4) else 19
    arrays = {"pos_embed": np.zeros((1, entries, 8))}
    arrays["patch_embed.proj.weight"] = np.zeros((8, 3, 4, 4))
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert open_source(tmp_path / "model.safetensors").grid == expected


def test_a_normalization_of_bytes_is_refused(cases, golden, build_case, tmp_path):
    save_file(golden.checkpoint(cases["hf"]), tmp_path / "model.safetensors")
    of_bytes = {"mean": (123, 117, 104), "std": (58, 57, 57)}
    with pytest.raises(CheckpointError, match="Divide values of"):
        keras_vit.load_checkpoint(
            build_case(cases["hf"]), tmp_path / "model.safetensors", **of_bytes
        )
