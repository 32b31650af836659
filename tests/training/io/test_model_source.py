"""Models come from runs, `.keras` files and checkpoints, with what is known of them."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from training.io.model_source import (
    load_hub_module,
    load_model,
    resizing,
    saved_arguments,
)

CONFIG = {
    "dataset": "digits",
    "data_dir": "",
    "eval_preprocess": "decode|resize(16)|value_range(-1,1)",
    "loss": "sigmoid",
    "model": {"name": "ViT-Ti/16", "image_size": 16},
}


def small(**overrides):
    arguments = {"image_size": 16, "patch_size": 8, "hidden_size": 8, "mlp_dim": 8, "num_heads": 1}
    return keras_vit.VisionTransformer(**{**arguments, "num_layers": 1, **overrides})


@pytest.mark.parametrize("num_classes", [10, 3])
def test_a_run_knows_its_classes_loss_and_preprocessing(tmp_path, num_classes):
    model = small(num_classes=num_classes)
    model.save(tmp_path / "model.keras")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    source = load_model(tmp_path)
    # Names that do not fit the head are of other classes.
    assert source.class_names == (list("0123456789") if num_classes == 10 else None)
    assert (source.name, source.run, source.activation) == (str(tmp_path), CONFIG, "sigmoid")
    assert source.image_size == (16, 16) and source.preprocess == CONFIG["eval_preprocess"]
    for mine, theirs in zip(source.model.weights, model.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_file_knows_its_model_alone(tmp_path):
    small(image_size=(16, 24), num_classes=10).save(tmp_path / "m.keras")
    source = load_model(tmp_path / "m.keras")
    assert source.run == {} and source.class_names is None and source.activation == "softmax"
    assert source.preprocess == "decode|resize([16,24])|value_range(-1,1)"
    assert resizing((4, 5), (0.0, 1.0)) == "decode|resize([4,5])|value_range(0,1)"


def test_a_checkpoint_needs_its_models_name(tmp_path):
    whole = keras_vit.create_model("ViT-Ti/32", num_classes=5, image_size=32)
    file = tmp_path / "whole.npz"
    keras_vit.save_checkpoint(whole, file)
    with pytest.raises(ValueError, match=r"whole\.npz.*--model=ViT-B/16"):
        load_model(file)
    source = load_model(file, name="ViT-Ti/32", num_classes=5, image_size=32)
    for mine, theirs in zip(source.model.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    headless = load_model(file, name="ViT-Ti/32", dropout_rate=0.5)
    assert headless.model.output_shape == (None, 192) and headless.image_size == (224, 224)
    assert headless.model.arguments["dropout_rate"] == 0.5
    with pytest.raises(ValueError, match="head"):
        load_model(file, name="ViT-Ti/32", num_classes=4, image_size=32)


def test_what_is_damaged_or_runs_code_is_named_and_not_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run directory with model\.keras"):
        load_model(tmp_path)
    (tmp_path / "text.keras").write_text("not a model")
    with pytest.raises(ValueError, match=r"zip archive.*text\.keras"):
        load_model(tmp_path / "text.keras")
    code = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x + 1)])
    code.save(tmp_path / "code.keras")
    with pytest.raises(ValueError, match=r"code\.keras cannot be loaded.*which is not run"):
        load_model(tmp_path / "code.keras")


def test_arguments_of_a_saved_model_build_its_like(tmp_path):
    model = small(num_classes=3, gelu="erf")
    model.save(tmp_path / "m.keras")
    arguments = saved_arguments(tmp_path / "m.keras")
    assert keras_vit.VisionTransformer(**arguments).arguments == model.arguments
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert saved_arguments(tmp_path) == CONFIG["model"]
    assert saved_arguments("ViT-B/16") is None
    keras.Sequential([keras.Input((4,))]).save(tmp_path / "foreign.keras")
    with pytest.raises(ValueError, match=r"VisionTransformer.*foreign\.keras, a Sequential"):
        saved_arguments(tmp_path / "foreign.keras")


def test_a_published_classifier_needs_its_name_alone(tmp_path, monkeypatch):
    whole = keras_vit.create_model("ViT-Ti/16", image_size=32)
    keras_vit.save_checkpoint(whole, tmp_path / "whole.npz")
    asked = []

    def find(name):
        asked.append(name)
        return tmp_path / "whole.npz"

    monkeypatch.setattr("keras_vit.checkpoints.load.find_checkpoint", find)
    source = load_model("augreg/Ti_16-imagenet2012", image_size=32)
    assert asked == ["augreg/Ti_16-imagenet2012"]
    assert source.class_names[:2] == ["tench", "goldfish"]
    assert source.model.arguments["num_classes"] == 1000 and source.image_size == (32, 32)


def test_a_run_says_what_its_model_says_and_not_what_its_folder_would(tmp_path):
    model = small(num_classes=2)
    model.class_names, model.preprocessing = ("crow", "finch"), "decode|resize(16)"
    model.save(tmp_path / "model.keras")
    config = {**CONFIG, "dataset": f"folder:{tmp_path / 'gone'}"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path).class_names == ["crow", "finch"]
    assert load_model(tmp_path).preprocess == CONFIG["eval_preprocess"]
    assert load_model(tmp_path / "model.keras").preprocess == "decode|resize(16)"
    # One from before models knew their classes.
    model.class_names = None
    model.save(tmp_path / "model.keras")
    assert load_model(tmp_path).class_names is None
    assert saved_arguments(tmp_path / "model.keras") == model.arguments


@pytest.mark.parametrize("content", [b"", b"\x08\x01", b"no module"])
def test_a_damaged_module_is_named(content, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(ValueError, match=r"loaded as a TF-Hub module: .*Export the model again"):
        load_hub_module(tmp_path)
