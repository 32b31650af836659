"""Folders for transformers and timm; those that open them are in `make test-hugging-face`."""

import importlib.util
import json
import os
import sys
import types

import keras
import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

import keras_vit
from keras_vit import export
from keras_vit.checkpoints.published_weights import DINOV3_LICENSE
from keras_vit.export.errors import ExportError, RuntimeMissing
from keras_vit.export.hugging_face import push
from keras_vit.export.verification import subprocesses
from tests.export.conftest import LABELS, answer, verify

os.environ["HF_HUB_OFFLINE"] = "1"
in_torch = pytest.mark.skipif(
    not importlib.util.find_spec("torch"), reason="PyTorch (make test-hugging-face)"
)
CUT = "decode|resize_small(40)|central_crop(32)|value_range(-1,1)"
ROPE = {"position_embedding": "rope_2d", "register_tokens": 4, "num_classes": None}
KINDS = {
    "token": {"gelu": "erf"},
    "features": {"num_classes": None, "image_size": (16, 32), "layer_norm_epsilon": 1e-5},
    "gap": {"classifier": "gap"},
    "registers": {"register_tokens": 3},
    "map": {"classifier": "map", "num_classes": None},
    "token_gap": {"classifier": "token_gap", "register_tokens": 2},
    "rotary": ROPE | {"mlp": "swiglu"},
    "map head": {"classifier": "map", "register_tokens": 2},
    "gated": {"mlp": "swiglu", "mlp_dim": 75},
    "sines": {"position_embedding": "sincos_2d"},
    "rows and columns": {"position_embedding": "learned_2d", "classifier": "gap"},
    "no positions": {"position_embedding": "none"},
    "gap features": {"classifier": "gap", "num_classes": None, "image_size": (16, 32)},
}
LEFT = {"transformers": ("map head", "gated", "gap features")}
LEFT["timm"] = ("token_gap", "rotary", "features")
PAIRS = [(kind, library) for library in LEFT for kind in KINDS if kind not in LEFT[library]]


@pytest.fixture
def written(make_vit, tmp_path):
    """Returns a function that returns a small model and its folder."""

    def write(kind, library="transformers", **options):
        model = make_vit(**KINDS[kind])
        model.class_names = LABELS if model.arguments["num_classes"] else None
        model.preprocessing = options.pop("preprocessing", None)
        return model, export.to_hugging_face(model, tmp_path / "m", library=library, **options)

    return write


def photos_of(model):
    size = model.input_shape[1:]
    return np.rint(np.random.default_rng(1).uniform(0, 255, (3, *size))).astype("float32") / 255


@pytest.mark.rows(*PAIRS)
def test_a_folder_comes_back_as_the_same_model(kind, library, written):
    model, folder = written(
        kind, library, preprocessing=None if "image_size" in KINDS[kind] else CUT
    )
    back, images = keras_vit.create_model(folder), photos_of(model)
    np.testing.assert_allclose(answer(back, images), answer(model, images), atol=1e-6)
    assert back.class_names == model.class_names
    assert back.preprocessing == model.preprocessing or model.preprocessing is None
    with safe_open(folder / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}


@in_torch
@pytest.mark.rows(*PAIRS)
def test_the_library_gives_the_same_numbers(kind, library, written, tmp_path):
    model, folder = written(kind, library)
    images, given, made = photos_of(model), tmp_path / "in.npy", tmp_path / "out.npz"
    np.save(given, images)
    subprocesses._in_torch(str(folder), str(given), str(made), library)
    expected = answer(model, images)
    limit = 1e-5 * max(1, np.abs(expected).max())
    np.testing.assert_allclose(np.load(made)["outputs"], expected, atol=limit)


@pytest.mark.rows(
    *(
        ({**KINDS[kind]}, library, "classifier=|mlp=|position_embedding=|epsilon=")
        for library, kinds in LEFT.items()
        for kind in kinds
    ),
    ({"representation_size": 12}, "timm", "representation_size=12"),
    ({"position_placement": "every"}, "timm", "position_placement='every'"),
    ({"attention": "axial", "classifier": "gap"}, "transformers", "attention='axial'"),
    ({"resnet": {"num_layers": ()}, "patch_size": 2}, "timm", "it has a ResNet"),
    ({"classifier": "gap", "image_size": (16, 32)}, "transformers", "not square"),
    ({"classifier": "token_gap", "mlp_dim": 48}, "transformers", "no multiple"),
    (ROPE | {"register_tokens": 0}, "transformers", "without register tokens"),
)
def test_what_a_library_cannot_express_is_named(arguments, library, said, make_vit, tmp_path):
    with pytest.raises(ExportError, match=said) as error:
        export.to_hugging_face(make_vit(**arguments), tmp_path / "m", library=library)
    assert f"for {library}. Received: vision_transformer, but " in str(error.value)
    assert "\n" not in str(error.value) and not [*tmp_path.iterdir()]


def test_card_license_labels_and_preparation(written):
    model, folder = written("token", preprocessing=CUT)
    assert "license" not in (folder / "README.md").read_text()
    stated = json.loads((folder / "preprocessor_config.json").read_text())
    assert stated["size"] == {"shortest_edge": 40} and stated["crop_size"]["width"] == 32
    model.activation = "linear"
    with pytest.raises(ExportError, match="its outputs are numbers, not classes"):
        export.to_hugging_face(model, folder)
    model.activation, model.license = "sigmoid", DINOV3_LICENSE
    with pytest.raises(ExportError, match=f"Expected license='{DINOV3_LICENSE}'"):
        export.to_hugging_face(model, folder, license="mit")
    model.thresholds = [0.2, 0.5, 0.5, 0.5, 0.9]
    export.to_hugging_face(model, folder, library="timm")
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: timm\npipeline_tag: image-classification\n")
    assert f"license: other\nlicense_name: {DINOV3_LICENSE}\n---" in card
    config = json.loads((folder / "config.json").read_text())
    assert config["label_names"] == LABELS and config["pretrained_cfg"]["crop_mode"] == "center"
    with pytest.warns(UserWarning, match=DINOV3_LICENSE):
        back = keras_vit.create_model(folder)
    assert (back.activation, back.license) == ("sigmoid", DINOV3_LICENSE)
    assert back.thresholds == model.thresholds


def test_the_command_writes_and_pushes(make_vit, tmp_path, printed, refused, monkeypatch):
    make_vit().save(tmp_path / "m.keras")
    calls = []

    class HfApi:
        def create_repo(self, repository, **options):
            calls.append((repository, options))
            return f"https://huggingface.co/{repository}"

        def upload_folder(self, repo_id, folder_path):
            calls.append((repo_id, sorted(os.listdir(folder_path))))
            if repo_id == "another/m":
                raise OSError("403 Forbidden:\nnot yours")

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(HfApi=HfApi))
    words = ["export", "hugging_face", tmp_path / "m.keras", f"--output={tmp_path / 'm'}"]
    said = printed(*words, "--push=me/m", "--license=MIT")
    assert said.endswith("pushed to https://huggingface.co/me/m\n") and "not verified" in said
    files = ["README.md", "config.json", "keras_vit.json", "model.safetensors"]
    files += ["preprocessor_config.json"]
    assert calls == [("me/m", {"private": True, "exist_ok": True}), ("me/m", files)]
    assert "license: mit\n" in (tmp_path / "m/README.md").read_text()
    (tmp_path / "m/keras_vit.json").unlink()
    assert "holds something else" in refused(*words)
    (tmp_path / "m/keras_vit.json").touch()
    assert "403 Forbidden: not yours Log in with" in refused(*words, "--push=another/m")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(RuntimeMissing, match="Expected the package transformers"):
        verify(make_vit(), tmp_path / "m", photos_of(make_vit()))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ExportError, match=r"keras-vit-16x16\[huggingface\]"):
        push(tmp_path, "me/m")


@in_torch
@pytest.mark.parametrize("library", LEFT)
def test_verify_runs_photos_there_and_finds_what_is_wrong(library, written, tmp_path, printed):
    model, folder = written("token", library)
    model.save(tmp_path / "m.keras")
    (tmp_path / "photos").mkdir()
    for index, pixels in enumerate(np.rint(photos_of(model) * 255).astype("uint8")):
        Image.fromarray(pixels).save(tmp_path / f"photos/{index}.png")
    words = [folder, f"--against={tmp_path / 'm.keras'}", f"--runtime={library}"]
    said = printed("export", "verify", *words, f"--data={tmp_path / 'photos'}")
    assert f"{library} on {library} " in said and "good" in said.splitlines()[-1]
    model.class_names = LABELS[::-1]
    assert "other names of classes" in str(verify(model, folder, photos_of(model)).failures)
    model.get_layer("head").bias.assign_add([0.1] * 5)
    assert not verify(model, folder, photos_of(model)).ok


@in_torch
@pytest.mark.parametrize("kind", ["vit", "dinov2", "siglip", "timm"])
def test_what_the_libraries_write_comes_in(kind, tmp_path, monkeypatch):
    import timm
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 8}
    sizes |= {"image_size": 32, "intermediate_size": 64}
    labels = dict(enumerate(LABELS))
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    if kind == "timm":
        sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
        model = timm.create_model(
            "vit_tiny_patch16_224",
            num_classes=5,
            reg_tokens=2,
            **sizes,
            no_embed_class=True,
            init_values=0.5,
        )
        config = {"label_names": LABELS}
        timm.models.save_for_hf(model, tmp_path, config, safe_serialization=True)
    else:
        kinds = {"vit": "ViT", "dinov2": "Dinov2", "siglip": "Siglip"}
        config = transformers.AutoConfig.for_model(kind, id2label=labels, **sizes)
        if kind == "siglip":
            tower = config.vision_config.__class__(**sizes)
            config = transformers.SiglipConfig(vision_config=tower, id2label=labels)
        made = getattr(transformers, f"{kinds[kind]}ForImageClassification")
        model = made(config)
        model.save_pretrained(tmp_path, max_shard_size="20KB")
        processor.save_pretrained(tmp_path)
        assert (tmp_path / "model.safetensors.index.json").exists()
    pixels = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    with torch.no_grad():
        given = model.eval()(torch.tensor(pixels).permute(0, 3, 1, 2))
    given = given if kind == "timm" else given.logits
    # The layout of huggingface_hub's cache, which it reads without a network.
    repository = tmp_path / "cache/models--me--m"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("1234")
    (repository / "snapshots").mkdir()
    (repository / "snapshots/1234").symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    ours = keras_vit.create_model("hf://me/m")
    found = keras.ops.convert_to_numpy(ours(pixels, training=False))
    np.testing.assert_allclose(found, given.numpy(), atol=1e-5)
    assert ours.class_names == tuple(LABELS) and ours.preprocessing
