"""Folders of transformers and timm as models: the configurations are written by hand."""

import json
import re
import sys
import types

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, DownloadError
from keras_vit.checkpoints.download import find_checkpoint
from keras_vit.photos.prepare_photos import prepare_photo
from tests.keras_vit.small import assert_logits

LABELS = [f"c{index}" for index in range(7)]
SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 64}
SIZES |= {"patch_size": 16, "intermediate_size": 96, "id2label": dict(enumerate(LABELS))}
SIGLIP = {**SIZES, "hidden_act": "gelu_pytorch_tanh", "model_type": "siglip_vision_model"}
DINOV2 = {**SIZES, "model_type": "dinov2", "patch_size": 14, "image_size": 56, "mlp_ratio": 2}
TIMM = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "label_names": LABELS}
ARGUMENTS = {"img_size": 64, "embed_dim": 48, "depth": 3, "num_heads": 4, "mlp_ratio": 2}
SMALLER = ARGUMENTS | {"img_size": [56, 56], "patch_size": 14, "class_token": True}
MAP = {"class_token": False, "global_pool": "map"}
# What transformers leaves out of config.json is left out.
CONFIGS = {
    "hf": {**SIZES, "model_type": "vit"},
    "hf_dinov2": DINOV2,
    "hf_dinov2_registers": {**DINOV2, "num_register_tokens": 4},
    "hf_siglip": {"model_type": "siglip", "vision_config": SIGLIP | {"id2label": {}}},
    "hf_siglip_classifier": {"vision_config": SIGLIP, **SIGLIP, "model_type": "siglip"},
    "timm": {**TIMM, "model_args": ARGUMENTS},
    "deit3": {**TIMM, "model_args": ARGUMENTS | {"no_embed_class": True, "init_values": 1e-6}},
    "dinov2_registers": {**TIMM, "model_args": SMALLER | {"reg_tokens": 4}},
    "siglip": {**TIMM, "model_args": ARGUMENTS | MAP},
    "hf_deit": {**SIZES, "model_type": "deit"},
    "deit_distilled": {
        **TIMM,
        "architecture": "deit_tiny_distilled_patch16_224",
        "model_args": ARGUMENTS,
    },
}


def write(folder, case, config, golden, **processor):
    arrays = golden.checkpoint(case)
    save_file(arrays, folder / "model.safetensors")
    mean, std = (case.get(key, [0.5] * 3) for key in ("mean", "std"))
    if "architecture" in config:
        cfg = {"input_size": [3, 224, 224], "mean": mean, "std": std, **processor}
        config = {"pretrained_cfg": cfg, **config}
    stated = {"image_mean": mean, "image_std": std, **processor}
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def folder(tmp_path, cases, golden):
    """Returns a function that writes the folder of a golden case, with changes of its config."""

    def make(name, changes=(), **processor):
        return write(tmp_path, cases[name], CONFIGS[name] | dict(changes), golden, **processor)

    return make


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_is_its_model(name, folder, cases):
    model, case = keras_vit.create_model(folder(name)), cases[name]
    assert_logits(model, case)
    expected = {**case["model"], "num_classes": case["num_classes"]}
    assert {key: model.arguments[key] for key in expected} == expected
    assert model.arguments["image_size"] == (case["image_size"],) * 2
    assert model.class_names == (tuple(LABELS) if case["num_classes"] else None)


def test_another_head_another_size_and_arguments_of_the_caller(folder):
    path = folder("hf", size=64)
    model = keras_vit.create_model(path, num_classes=3, image_size=(32, 64), dropout_rate=0.5)
    assert model.output_shape == (None, 3) and model.input_shape == (None, 32, 64, 3)
    assert not np.any(model.get_layer("head").kernel) and model.class_names is None
    assert model.arguments["dropout_rate"] == 0.5
    assert keras_vit.create_model(path, num_classes=None).output_shape == (None, 48)
    with pytest.raises(ValueError, match="Expected weights=None"):
        keras_vit.create_model(path, weights="augreg/B_16")


MEAN = ARGUMENTS | {"global_pool": "avg"}


@pytest.mark.rows(
    ("hf", {"model_type": "swin"}, r"Expected a model_type of vit, .*model_type='swin'"),
    ("hf", {"hidden_size": 64}, r"contradict each other in vit\.embeddings\.patch"),
    ("hf", {"num_hidden_layers": 2}, r"contradict each other in vit\.encoder\.layer\.2"),
    ("hf", {"intermediate_size": 192}, r"contradict each other in .*0\.intermediate\.dense"),
    ("hf", {"patch_size": 8}, r"in the positions: 17 of them, 64 patches"),
    ("hf", {"image_size": 96}, "in the positions: 17 of them, 36 patches"),
    ("hf", {"id2label": {"0": "a"}}, "in the classes: 7 of them, 1 names"),
    ("hf", {"hidden_size": 10**9}, "in the sizes: the arrays are of a smaller model"),
    ("hf", {"num_attention_heads": 5}, "multiple of `num_heads`"),
    ("hf", {"num_attention_heads": "four"}, "`num_heads` must be a positive int"),
    ("hf", {"hidden_act": "relu"}, "Expected the activation to be a GELU"),
    ("hf", {"id2label": 3}, "config.json is damaged"),
    ("hf_dinov2_registers", {"num_register_tokens": 2}, r"in .*embeddings\.register_tokens"),
    ("timm", {"architecture": "resnet50"}, "says architecture='resnet50'"),
    ("timm", {"model_args": ARGUMENTS | {"qk_norm": True}}, "says qk_norm=True"),
    ("timm", {"model_args": ARGUMENTS | {"depth": 2}}, r"in blocks\.2"),
    ("timm", {"model_args": MEAN}, "says global_pool='avg', with a class token"),
    ("timm", {"model_args": {"img_size": 64}}, "in the sizes: the arrays are of a smaller"),
    ("siglip", {"model_args": ARGUMENTS}, "says global_pool='token', without a class token"),
)
def test_contradictions_and_other_models_are_refused_in_a_line(name, changes, said, folder):
    with pytest.raises(ValueError, match=said) as error:
        keras_vit.create_model(folder(name, changes))
    assert "\n" not in str(error.value)


def test_damaged_and_missing_files_are_refused_in_a_line(folder):
    path = folder("hf")
    weights, config = path / "model.safetensors", path / "config.json"
    content = weights.read_bytes()

    def refused(said):
        with pytest.raises(ValueError, match=said) as error:
            keras_vit.create_model(path)
        assert "\n" not in str(error.value)

    weights.write_bytes(content[:-9])
    refused("is damaged or truncated")
    weights.write_bytes(content)
    (path / "preprocessor_config.json").write_text('{"size": {"height": "a", "width": "b"}}')
    refused("preprocessor_config.json is damaged")
    (path / "preprocessor_config.json").unlink()
    refused("does not tell how the images of its training were normalized")
    config.write_text("{")
    refused("config.json is damaged")
    config.unlink()
    refused("Expected config.json beside .*, which says what its arrays do not")
    weights.unlink()
    refused("Expected a model's name, or a folder .*, a folder without a model")
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')
    with pytest.raises(FileNotFoundError, match=r"b\.safetensors"):
        keras_vit.create_model(path)


NOISE = np.random.default_rng(0).integers(60, 190, (9, 14, 3)).astype("uint8")
PHOTO = np.asarray(Image.fromarray(NOISE).resize((140, 90), 2))
BY_SIDE, BOTH = {"size": {"shortest_edge": 80}}, {"size": {"height": 80, "width": 72}}
CROP = {"do_center_crop": True, "crop_size": {"height": 64, "width": 64}}


@pytest.mark.rows(
    # {keys of the processor}, the size that Pillow resizes to, its method, the size of the model
    ("hf", {"size": 64}, (64, 64), 2, 64),
    ("hf", {"size": 64, "resample": 3}, (64, 64), 3, 64),
    ("hf", {"size": 64}, (96, 96), 2, 96),
    ("hf", {**BOTH, **CROP}, (80, 72), 2, 64),
    ("hf", {**BY_SIDE, **CROP, "resample": 3}, (80, 124), 3, 64),
    ("hf", {**BY_SIDE, **CROP}, (40, 62), 2, 32),
    ("timm", {"crop_pct": 0.8, "interpolation": "bicubic"}, (80, 124), 3, 64),
    (
        "timm",
        {"crop_pct": 0.8, "crop_mode": "squash", "interpolation": "bilinear"},
        (80, 80),
        2,
        64,
    ),
)
def test_photos_are_prepared_as_pillow_does(name, processor, resized, method, size, folder):
    model = keras_vit.create_model(folder(name, **processor), image_size=size)
    found = prepare_photo(PHOTO, model.preprocessing)
    expected = np.asarray(Image.fromarray(PHOTO).resize(resized[::-1], method), "float32")
    top, left = ((side - size) // 2 for side in resized)
    expected = expected[top : top + size, left : left + size] / 127.5 - 1
    # Pillow rounds between rows and columns.
    np.testing.assert_allclose(found, expected, atol=2.1 / 127.5)
    assert np.abs(found - expected).mean() < 0.3 / 127.5


@pytest.mark.rows({"crop_mode": "border"}, {"interpolation": "hamming"})
def test_an_unknown_preparation_is_told(processor, folder, caplog):
    assert keras_vit.create_model(folder("timm", **processor)).preprocessing is None
    assert "prepares photos in a way that models here do not know" in caplog.text


@pytest.mark.rows(
    ("license: mit", None),
    ("license: cc-by-nc-4.0", "cc-by-nc-4.0"),
    ('license: other\nlicense_name: "dinov3-license"', "dinov3-license"),
)
def test_the_license_of_the_card_stays_with_the_model(header, license, folder, recwarn):
    path = folder("hf")
    (path / "README.md").write_text(f"---\n{header}\n---\nlicense: gpl\n")
    assert keras_vit.create_model(path).license == license
    assert any("does not allow every use" in str(each.message) for each in recwarn) == bool(license)


@pytest.mark.rows("hf://name", "hf://user/name@", "hf://user/name/more", "hf://user/na me")
def test_wrong_names_of_repositories(name):
    with pytest.raises(DownloadError, match=re.escape(f"@REVISION. Received: {name}")):
        find_checkpoint(name)


def test_repositories_are_what_huggingface_hub_downloads(folder, cases, monkeypatch):
    path, asked = folder("hf"), []

    def snapshot_download(repository, *, revision, allow_patterns):
        asked.append((repository, revision, "*.safetensors" in str(allow_patterns)))
        if revision == "gone":
            raise OSError("404 Client Error.\nIt is gone.")
        return str(path)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert_logits(keras_vit.create_model("hf://user/a-name_1.0@refs/pr/3"), cases["hf"])
    model = keras_vit.create_model("ViT-Ti/16", image_size=64, num_classes=7, num_layers=3)
    with pytest.raises(CheckpointError, match="says num_heads=4"):
        keras_vit.load_checkpoint(model, "hf://user/name")
    with pytest.raises(DownloadError, match=r"cannot be downloaded: OSError, 404 .*Check the name"):
        keras_vit.create_model("hf://user/name@gone")
    named = [("user/a-name_1.0", "refs/pr/3"), ("user/name", None), ("user/name", "gone")]
    assert [each[:2] for each in asked] == named
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match=r"keras-vit-16x16\[huggingface\]"):
        keras_vit.create_model("hf://user/name")
