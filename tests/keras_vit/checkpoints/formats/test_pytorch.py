"""Variations of the files of timm and Hugging Face; their logits are among the golden cases."""

import dataclasses
import itertools
import json
import shutil

import h5py
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, Layout, load_weights
from keras_vit.checkpoints import load as load_module
from keras_vit.checkpoints.array_files import read_arrays
from keras_vit.checkpoints.torch_layouts import (
    HUGGING_FACE_DINOV2,
    HUGGING_FACE_SIGLIP,
    HUGGING_FACE_VIT,
    TIMM,
    TORCH_LAYOUTS,
)
from tests.conftest import GOLDEN
from tests.keras_vit.small import assert_logits, assert_same, forward, positions_of, to_numpy

DINOV2 = {"hf_dinov2": "dinov2.", "hf_dinov2_registers": "dinov2_with_registers."}
RENAMED = {f"attention.attention.{n}": f"attention.{n[0]}_proj" for n in ("query", "key", "value")}
RENAMED |= {"attention.output.dense": "attention.o_proj"}
MLP = {"intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}
MARKS = ("vit.embeddings.distillation_token", "dist_token", "head_dist.weight")
LAYOUT_OF_CASE = {
    "hf": "Hugging Face's safetensors",
    **dict.fromkeys(DINOV2, "Hugging Face's DINOv2 safetensors"),
    **dict.fromkeys(("hf_siglip", "hf_siglip_classifier"), "Hugging Face's SigLIP safetensors"),
    **dict.fromkeys(("timm", "deit", "deit3", "dinov2", "siglip", "deit_distilled"), TIMM.title),
    "hf_deit": "Hugging Face's DeiT safetensors",
}


def replaced(arrays, names):
    for old, new in names.items():
        arrays = {name.replace(old, new): array for name, array in arrays.items()}
    return arrays


@pytest.fixture
def load(cases, build_case, load_case, tmp_path):
    def load(name, arrays, skip=(), **overrides):
        save_file(arrays, tmp_path / "model.safetensors")
        model = build_case(cases[name], **overrides)
        load_case(model, cases[name], tmp_path / "model.safetensors", skip=skip)
        return model

    return load


def refuse(load, *arguments, **overrides):
    with pytest.raises(CheckpointError) as error:
        load(*arguments, **overrides)
    return error.value


@pytest.mark.rows(
    ("hf", RENAMED | {"encoder.layer.": "layers."} | MLP),
    ("hf_dinov2", RENAMED),
    ("hf_dinov2_registers", RENAMED),
    ("hf_siglip", {"vision_model.": ""}),
)
def test_names_of_transformers_5(name, names, cases, golden, load):
    arrays = golden.checkpoint(cases[name])
    tower = {n: a for n, a in arrays.items() if not n.startswith(("text_model", "logit_"))}
    assert_logits(load(name, replaced(tower, names)), cases[name])


def test_directory_of_shards(cases, golden, build_case, load_case, tmp_path):
    arrays = golden.checkpoint(cases["hf"])
    files = dict(zip(arrays, itertools.cycle(["a.safetensors", "b.safetensors"]), strict=False))
    for file in set(files.values()):
        save_file({n: arrays[n] for n in arrays if files[n] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    model = build_case(cases["hf"])
    load_case(model, cases["hf"], tmp_path)
    assert_logits(model, cases["hf"])


@pytest.mark.rows(("hf", "module."), ("timm", "_orig_mod.module."), ("hf_siglip", "backbone.net."))
def test_a_prefix_of_all_names_is_taken_off_and_of_some_is_named(name, prefix, cases, golden, load):
    arrays = golden.checkpoint(cases[name])
    wrapped = {prefix + own: array for own, array in arrays.items()}
    assert_logits(load(name, wrapped), cases[name])
    # A counter of averaged updates, and another model.
    error = refuse(load, name, {**wrapped, "n_averaged": np.ones(1, "int64")})
    assert f"with {prefix} before a model's names, and n_averaged" in str(error)
    two = {**wrapped, **{f"ema.{own}": array for own, array in arrays.items()}}
    assert f"with {', '.join(sorted([prefix, 'ema.']))} before" in str(refuse(load, name, two))


@pytest.mark.rows(
    *(("timm" if "." not in m else "hf", m, "is of a distilled model") for m in MARKS),
    ("hf", "distillation_classifier.weight", "is of a distilled model"),
    ("hf", "vit.encoder.layer.0.attention.attention.query.lora_A.weight", "save_pretrained"),
    ("hf", "base_model.model.vit.layernorm.base_layer.weight", "save_pretrained"),
)
def test_distilled_and_adapted_models_are_refused_as_such(case, name, reason, cases, golden, load):
    arrays = {**golden.checkpoint(cases[case]), name: np.ones((1, 48), "float32")}
    error = refuse(load, case, arrays, skip=(name,))
    assert reason in str(error) and error.left_over == (name,)


def test_a_distilled_file_is_a_model_of_two_heads(cases, golden, load, build_case, tmp_path):
    case, arrays = cases["deit_distilled"], golden.checkpoint(cases["deit_distilled"])
    model = load("deit_distilled", arrays)
    heads = model.up_to(("class_logits", "distillation_logits", "logits"))
    found = forward(heads, golden.images_of(case))
    expected = np.array(case["distillation_logits"])
    np.testing.assert_allclose(found["distillation_logits"], expected, atol=2e-5 * expected.std())
    both = (found["class_logits"] + found["distillation_logits"]) / 2
    np.testing.assert_allclose(found["logits"], both, atol=1e-6)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", Layout(class_position=False))
    keras_vit.load_checkpoint(again := build_case(case), tmp_path / "a.npz")
    np.testing.assert_allclose(forward(again, golden.images_of(case)), found["logits"], atol=1e-6)
    # Other classes, and other pixels: both heads are new, both entries of the table stay.
    other = load("deit_distilled", arrays, skip=("head",), num_classes=3, image_size=96)
    table, resized = positions_of(model), positions_of(other)
    np.testing.assert_array_equal(resized[:, :2], table[:, :2])
    assert resized.shape == (1, 2 + 6 * 6, 48)
    model.save(tmp_path / "model.keras")
    load_weights(other, tmp_path / "model.keras")
    assert not to_numpy(other.get_layer("head_distillation").kernel).any()
    np.testing.assert_array_equal(positions_of(other), resized)
    error = refuse(load, "deit_distilled", golden.checkpoint(cases["deit"]))
    assert error.missing == ("dist_token", "head_dist.bias", "head_dist.weight")


def test_tf_model_h5_of_transformers_4(golden, tmp_path):
    """Written on TensorFlow 2.19 by transformers 4.57.6 and tf-keras.

    That is save_pretrained of TFViTForImageClassification, of ViTConfig(image_size=32,
    patch_size=16, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
    num_labels=3). Its weights, in order, are default_rng(0).normal(0, 0.3), and gammas 1 more.
    """
    file = tmp_path / "tf_model.h5"
    shutil.copy(GOLDEN / file.name, file)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    sizes |= {"model_type": "vit", "hidden_size": 8, "image_size": 32, "patch_size": 16}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    stated = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    model = keras_vit.create_model(tmp_path)
    expected = [
        [-1.0015300512, -0.3592050076, 0.6185680032],
        [-1.0507819653, -0.2503989935, 0.8258159757],
    ]
    found = forward(model, golden.image((2, 32, 32, 3), 5))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert model.checkpoint_layout.title == LAYOUT_OF_CASE["hf"]
    # Numbers that lie in no file, those of another kind of HDF5, and half a file.
    with h5py.File(file, "a") as h5:
        del h5["vit/tf_vi_t_for_image_classification/vit/layernorm/beta:0"]
        h5.create_dataset("vit/tf_vi_t/vit/layernorm/beta:0", (10**9,), "f4")
    for content, said in (
        (file.read_bytes(), "layernorm/beta:0 is another"),
        (file.read_bytes()[:5000], "is damaged or truncated"),
    ):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=said):
            keras_vit.load_checkpoint(model, tmp_path)
    model.save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(CheckpointError, match=r"Received: HDF5\. Load it with"):
        keras_vit.load_checkpoint(model, tmp_path / "a.weights.h5")


def test_a_folder_with_an_adapter_is_refused_also_beside_its_base(cases, golden, load, tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    load("hf", golden.checkpoint(cases["hf"]))
    with pytest.raises(CheckpointError, match=r"holds an adapter.*merge_and_unload"):
        read_arrays(tmp_path)


@pytest.mark.rows(
    ("hf", "qkv_bias", ("query.bias", "key.bias", "value.bias")),
    ("timm", "qkv_bias", ("qkv.bias",)),
    ("timm", "proj_bias", ("attn.proj.bias", "fc1.bias", "fc2.bias")),
)
def test_biases_turned_off_are_zero(case, key, without, cases, golden, load, tmp_path):
    arrays = golden.checkpoint(cases[case])
    zero = {n: np.zeros_like(a) if n.endswith(without) else a for n, a in arrays.items()}
    images = golden.images_of(cases[case])
    expected = forward(load(case, zero), images)
    rest = {name: array for name, array in arrays.items() if not name.endswith(without)}
    assert len(refuse(load, case, rest).missing) == len(arrays) - len(rest)
    stated = {key: False} if case == "hf" else {"model_args": {key: False}}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    np.testing.assert_array_equal(forward(load(case, rest), images), expected)
    some = dict(list(rest.items())[:-3])
    assert set(refuse(load, case, some).missing) == set(rest) - set(some)


@pytest.mark.rows(
    # Twelve, as text sorts 10 before 2.
    ({"id2label": {str(i): f"c{i}" for i in range(12)}}, [f"c{i}" for i in range(12)], "softmax"),
    ({"id2label": {"1": "dog", "0": "a\ncat"}}, ["a cat", "dog"], "softmax"),
    ({"label_names": ["cat", "dog"]}, ["cat", "dog"], "softmax"),
    ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, None, "softmax"),
    ({"id2label": {"1": "cat", "2": "dog"}}, None, "softmax"),
    ({"id2label": {"0": "cat", "1": "dog", "2": "emu"}}, None, "softmax"),
    ({"problem_type": "multi_label_classification"}, None, "sigmoid"),
)
def test_the_head_brings_its_labels(config, names, activation, cases, golden, load, tmp_path):
    classes = len(names or (0, 0))
    head = {"classifier.weight": np.ones((classes, 48)), "classifier.bias": np.ones(classes)}
    arrays = golden.checkpoint(cases["hf"]) | {n: a.astype("float32") for n, a in head.items()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load("hf", arrays, num_classes=classes)
    assert (model.class_names, model.activation) == (names and tuple(names), activation)
    kept = load("hf", arrays, num_classes=classes, skip=("head",))
    assert (kept.class_names, kept.activation) == (None, "softmax")


@pytest.mark.parametrize("name", DINOV2)
def test_dinov2_without_classifier(name, cases, golden, load):
    """`Dinov2Model` pools the class token: the first half of the classifier's input."""
    arrays = golden.checkpoint(cases[name])
    whole = load(name, arrays, skip=("head",), num_classes=None)
    bare = {n.removeprefix(DINOV2[name]): a for n, a in arrays.items() if "classifier" not in n}
    pooled = load(name, bare, num_classes=None, classifier="token")
    images = golden.images_of(cases[name])
    np.testing.assert_allclose(forward(pooled, images), forward(whole, images)[:, :48], atol=2e-5)


def test_files_without_classifier_and_with_a_pooler_which_is_the_hidden_layer(cases, golden, load):
    arrays = golden.checkpoint(cases["hf"])
    bare = {n.removeprefix("vit."): a for n, a in arrays.items() if n.startswith("vit.")}
    load("hf", bare, num_classes=None)
    error = refuse(load, "hf", bare)
    assert sorted(error.missing) == ["classifier.bias", "classifier.weight"]
    assert 'skip=("head",)' in str(error)
    weight = np.random.default_rng(0).standard_normal((48, 48), "float32")
    pooled = arrays | {"vit.pooler.dense.weight": weight, "vit.pooler.dense.bias": weight[0]}
    model = load("hf", pooled, representation_size=48)
    np.testing.assert_array_equal(to_numpy(model.get_layer("pre_logits").kernel), weight.T)
    assert 'skip=("pre_logits",)' in str(refuse(load, "hf", pooled))
    load("hf", pooled, skip=("pre_logits",))
    load("hf", pooled, skip=("pooler",))


def test_rectangle_of_the_config(cases, golden, load, tmp_path):
    """4 x 4 patches and 2 x 8 are as many: config.json tells them apart."""
    arrays = golden.checkpoint(cases["hf"])
    table = arrays["vit.embeddings.position_embeddings"]
    for size, equal in (([32, 128], True), ([64, 64], False)):
        (tmp_path / "config.json").write_text(json.dumps({"image_size": size, "patch_size": 16}))
        model = load("hf", arrays, image_size=(32, 128))
        assert np.array_equal(positions_of(model), table) == equal


@pytest.mark.parametrize("prefix", ["vision_model.", ""])
def test_siglips_head_is_not_the_classifier(prefix, cases, golden, load, tmp_path):
    """Their module `head` is our `MAPHead_0`; `skip` and transfer call the logits head."""
    arrays = golden.checkpoint(cases["hf_siglip"])
    tower = {n: a for n, a in arrays.items() if n.startswith("vision_model.")}
    tower = replaced(tower, {"vision_model.": prefix})
    model = load("hf_siglip", tower, skip=("head",), num_classes=4)
    probe = to_numpy(model.get_layer("pool").probe)
    np.testing.assert_array_equal(probe, tower[f"{prefix}head.probe"])
    # As transformers 5 writes it.
    processor = {"image_processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}}
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    model.get_layer("pool").probe.assign(np.zeros_like(probe))
    load_weights(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(model.get_layer("pool").probe), probe)


def test_poolings_of_another_kind_are_refused(cases, golden, load):
    def refused(name, classifier):
        return refuse(load, name, golden.checkpoint(cases[name]), classifier=classifier)

    assert "no place for the model's MAPHead_0/probe" in str(refused("hf", "map"))
    left_over = refused("hf_siglip", "gap").left_over
    assert all(name.startswith("vision_model.head.") for name in left_over)
    assert 'classifier="gap"' in str(refused("hf_siglip_classifier", "map"))


def test_every_layout_is_written():
    # `test_segmenter.py` and `test_dinov3.py` write theirs.
    others = {each.title for each in TORCH_LAYOUTS if not each.title.startswith("Segmenter")}
    assert {title for title in others if "DINOv3" not in title} == {*LAYOUT_OF_CASE.values()}


@pytest.mark.parametrize("name", LAYOUT_OF_CASE)
def test_files_are_written_back(name, cases, golden, build_case, tmp_path):
    """Bit for bit, but for LayerScale, which was folded, and a class token's position."""
    half, arrays = {"mean": 0.5, "std": 0.5}, golden.checkpoint(cases[name])
    save_file(arrays, tmp_path / "a.safetensors")
    model, other = build_case(cases[name]), build_case(cases[name])
    keras_vit.load_checkpoint(model, tmp_path / "a.safetensors", **half)
    layout = model.checkpoint_layout
    assert layout.title == LAYOUT_OF_CASE[name]
    keras_vit.save_checkpoint(model, tmp_path / "b.safetensors", layout)
    keras_vit.load_checkpoint(other, tmp_path / "b.safetensors", **half)
    assert_same(model, other)
    assert other.checkpoint_layout == layout
    written = load_file(tmp_path / "b.safetensors")
    scales = {n for n in arrays if n.endswith(("lambda1", "gamma"))}
    folded = {f"{n.rsplit('.', 2)[0]}.{p}" for n in scales for p in ("attn.proj", "mlp.fc2")}
    folded |= {n.replace("attn.proj", "attention.output.dense") for n in folded}
    expected = {n for n in arrays if layout.owns(n)} - (scales if layout == TIMM else set())
    assert written.keys() == expected
    for array in expected - (scales if layout.title == HUGGING_FACE_DINOV2.title else set()):
        if array.rpartition(".")[0] in folded:
            continue
        value = arrays[array]
        if array == "pos_embed" and written[array].shape != value.shape:
            assert not written[array][:, 0].any()
            written[array] = written[array][:, 1:]
        assert written[array].dtype == value.dtype and written[array].shape == value.shape, array
        assert written[array].tobytes() == value.tobytes(), array
    assert all((written[n] == 1).all() for n in scales & written.keys())


def test_a_row_is_a_layout_that_is_recognized_read_and_written(
    cases, golden, build_case, tmp_path, monkeypatch
):
    table = {n: own.replace("pos_embed", "table") for n, own in TIMM.tables[0].items()}
    layout = dataclasses.replace(
        TIMM, title="a new one", tables=(table,), marks=("table",), layer_scale=True
    )
    layouts = (*load_module.LAYOUTS[:-1], layout, TIMM)
    monkeypatch.setattr(load_module, "LAYOUTS", layouts)
    model, other = build_case(cases["timm"]), build_case(cases["timm"])
    save_file(golden.checkpoint(cases["timm"]), tmp_path / "timm.safetensors")
    keras_vit.load_checkpoint(model, tmp_path / "timm.safetensors", mean=0.5, std=0.5)
    keras_vit.save_checkpoint(model, tmp_path / "new.safetensors", layout)
    written = load_file(tmp_path / "new.safetensors")
    assert (written["blocks.2.ls2.gamma"] == 1).all() and "pos_embed" not in written
    keras_vit.load_checkpoint(other, tmp_path / "new.safetensors", mean=0.5, std=0.5)
    assert other.checkpoint_layout == layout
    assert_same(model, other)


def test_models_that_a_layout_cannot_hold_are_not_written(build_case, cases, tmp_path):
    model = build_case(cases["hf"], position_embedding="relative")
    for layout in TORCH_LAYOUTS:
        with pytest.raises(CheckpointError, match=f"{layout.title} has no place for the model's"):
            keras_vit.save_checkpoint(model, tmp_path / "a.safetensors", layout)
    with pytest.raises(ValueError, match=r"a\.safetensors.* Pass layout="):
        keras_vit.save_checkpoint(model, tmp_path / "a.safetensors")
    for name, layout, changes, message in (
        (
            "hf",
            HUGGING_FACE_VIT,
            {"classifier": "gap"},
            "has a class token, and the model has none",
        ),
        ("hf", HUGGING_FACE_DINOV2, {"classifier": "gap"}, "has a class token, and the mod"),
        ("timm", TIMM, {"in_channels": 1}, "is of color images"),
        (
            "hf_siglip",
            HUGGING_FACE_SIGLIP,
            {"num_classes": 3},
            "a file with classifier.weight is of ano",
        ),
    ):
        model = build_case(cases[name], **changes)
        with pytest.raises(ValueError, match=message):
            keras_vit.save_checkpoint(model, tmp_path / "a.safetensors", layout)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floating_point_types(dtype, cases, golden, load):
    arrays = {n: a.astype(dtype) for n, a in golden.checkpoint(cases["timm"]).items()}
    kernel = to_numpy(load("timm", arrays).get_layer("head").kernel)
    np.testing.assert_array_equal(kernel, arrays["head.weight"].T.astype("float32"))


@pytest.mark.parametrize("name", DINOV2)
def test_gated_mlps_are_left_over(name, cases, golden, load, tmp_path):
    arrays = golden.checkpoint(cases[name])
    mlp = DINOV2[name] + "encoder.layer.0.mlp."
    first, gate = f"{mlp}fc1.weight", f"{mlp}weights_in.weight"
    assert refuse(load, name, {**arrays, first: arrays[first].repeat(2, axis=0)}).mis_shaped
    gated = {n: a for n, a in arrays.items() if not n.startswith(mlp)}
    gated[gate] = np.zeros((128, 48), "float32")
    assert gate in refuse(load, name, gated).left_over
    (tmp_path / "config.json").write_text('{"model_type": "beit"}')
    assert "model_type='beit', which is another architecture" in str(refuse(load, name, gated))


def test_what_pretraining_alone_needs_is_left_and_other_arrays_are_not(cases, golden, load):
    arrays = golden.checkpoint(cases["dinov2"])
    load("dinov2", {**arrays, "mask_token": np.ones((1, 48), "float32")})
    # A scale of no layer, and the token of a distillation.
    for name in ("blocks.3.ls1.gamma", "dist_token"):
        assert refuse(load, "dinov2", {**arrays, name: np.ones(1, "float32")}).left_over == (name,)
    name = "blocks.2.ls1.gamma"
    assert refuse(load, "dinov2", {**arrays, name: np.ones(1, "float32")}).mis_shaped == (name,)


@pytest.mark.parametrize(("case", "mark"), [("dinov2", "ls2.gamma"), ("hf_dinov2", "lambda1")])
def test_a_layer_scale_that_some_branches_lack_is_refused(case, mark, cases, golden, load):
    arrays = golden.checkpoint(cases[case])
    name = max(name for name in arrays if name.endswith(mark))
    del arrays[name]
    assert refuse(load, case, arrays).missing == (name,)


@pytest.mark.rows(
    ({"model_args": {"img_size": [24, 12]}}, (6, 3)),
    ({"pretrained_cfg": {"input_size": [3, 24, 12]}}, (6, 3)),
    ({"input_size": [3, 24, 12]}, (6, 3)),
    ({"input_size": [3, 24, 12], "prefix": "module."}, (6, 3)),
    # Of pre-training at another size than the file's.
    ({"pretrained_cfg": {"input_size": [3, 16, 16]}}, None),
    ({"image_size": [24, 12], "patch_size": [4, 4]}, (6, 3)),
    ({"image_size": [24, 12], "patch_size": 4}, (6, 3)),
    ({"image_size": 24, "patch_size": 4}, None),
    ({"vision_config": {"image_size": [24, 12], "patch_size": 4}}, (6, 3)),
    ({"image_size": 16, "patch_size": 4}, (4, 4)),
    ({"model_args": {"img_size": 16}}, (4, 4)),
)
def test_the_grid_of_a_configuration(config, expected, tmp_path):
    entries = 17 if expected == (4, 4) else 19
    arrays = {"pos_embed": np.zeros((1, entries, 8))}
    arrays[config.get("prefix", "") + "patch_embed.proj.weight"] = np.zeros((8, 3, 4, 4))
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_arrays(tmp_path / "model.safetensors").grid == expected
