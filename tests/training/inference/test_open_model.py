import json
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training.config import schema
from keras_vit.training.inference.interface import interface_of, labels_of, resizing
from keras_vit.training.inference.open_model import load_model
from keras_vit.training.source_facts import read_run_config, runs_behind, saved_arguments
from tests.tiny_vit import tiny_vit
from tests.training.runs import DATA

PREPROCESS, MODEL = "decode|resize(16)|value_range(-1,1)", {"name": "ViT-Ti/16", "image_size": 16}
CONFIG = {"data": DATA, "eval_preprocess": PREPROCESS, "loss": "sigmoid", "model": MODEL}
COMPLETE = schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
WHOLE = json.loads(schema.to_json(COMPLETE, DATA))


def test_a_run_and_a_file_know_their_model(tmp_path):
    model = tiny_vit(image_size=(16, 24), patch_size=8, num_classes=2, num_layers=1)
    model.save(tmp_path / "plain.keras")
    plain = load_model(tmp_path / "plain.keras")
    assert (
        plain.run == {}
        and plain.interface.class_names is None
        and plain.model.activation == "softmax"
    )
    assert plain.interface.preprocessing == "decode|resize([16,24])|value_range(-1,1)"
    assert resizing((4, 5), (0.0, 1.0)) == "decode|resize([4,5])|value_range(0,1)"
    model.class_names, model.preprocessing = ("crow", "finch"), "decode|resize(16)"
    model.activation = "sigmoid"
    model.save(tmp_path / "model.keras")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    source = load_model(tmp_path)
    assert source.interface.class_names == ["crow", "finch"] and source.interface.image_size == (
        16,
        24,
    )
    assert (source.name, source.run, source.model.activation) == (str(tmp_path), CONFIG, "sigmoid")
    assert source.interface.preprocessing == PREPROCESS
    assert load_model(tmp_path / "model.keras").interface.preprocessing == "decode|resize(16)"
    np.testing.assert_equal(source.model.get_weights(), model.get_weights())
    with pytest.raises(ValueError, match="for a checkpoint alone"):
        load_model(tmp_path, image_size=32)


def test_a_checkpoint_needs_its_models_name_unless_published(shallow, tmp_path, monkeypatch):
    whole = keras_vit.create_model("ViT-Ti/32", num_classes=5, image_size=32)
    file = tmp_path / "whole.npz"
    keras_vit.save_checkpoint(whole, file)
    with pytest.raises(ValueError, match=r"whole\.npz.*--model=ViT-B/16"):
        load_model(file)
    source = load_model(file, name="ViT-Ti/32", num_classes=5, image_size=32)
    np.testing.assert_equal(source.model.get_weights(), whole.get_weights())
    headless = load_model(file, name="ViT-Ti/32", dropout_rate=0.5)
    assert headless.model.output_shape == (None, 192) and headless.interface.image_size == (
        224,
        224,
    )
    assert headless.model.arguments["dropout_rate"] == 0.5
    with pytest.raises(ValueError, match="head"):
        load_model(file, name="ViT-Ti/32", num_classes=4, image_size=32)
    keras_vit.save_checkpoint(keras_vit.create_model("ViT-Ti/16", image_size=32), file)
    files = {"augreg/Ti_16-imagenet2012": file}
    monkeypatch.setattr("keras_vit.checkpoints.load.find_checkpoint", files.__getitem__)
    source = load_model("augreg/Ti_16-imagenet2012", image_size=32)
    assert source.interface.class_names[:2] == ["tench", "goldfish"]
    assert source.model.arguments["num_classes"] == 1000 and source.interface.image_size == (32, 32)


def test_what_stands_in_the_place_of_a_model_is_said(tmp_path):
    (tmp_path / "run" / "checkpoints" / "checkpoint-1300").mkdir(parents=True)
    (tmp_path / "run" / "config.json").touch()
    (tmp_path / "photo.PNG").touch()
    for source, said in (
        ("digits", "digits, a data set, in the model's place: --dataset names it"),
        ("folder:birds", "folder:birds, a data set"),
        (tmp_path / "nowhere", "nowhere, which does not exist"),
        (tmp_path, "a folder without model.keras"),
        (tmp_path / "photo.PNG", "photo.PNG, an image"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=f"Received: .*{said}"):
            load_model(source)
    expected = (
        "run has no model.keras yet: a run writes it when it ends. It is at step 1,300: the s"
    )
    with pytest.raises(FileNotFoundError, match=expected):
        load_model(tmp_path / "run")
    # Code is not run.
    code = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x + 1)])
    code.save(tmp_path / "code.keras")
    with pytest.raises(ValueError, match=r"code\.keras cannot be loaded.*which is not run"):
        load_model(tmp_path / "code.keras")


def test_arguments_of_a_saved_model_build_its_like(tmp_path):
    model = tiny_vit(patch_size=8, num_classes=3, gelu="erf")
    model.save(tmp_path / "m.keras")
    arguments = saved_arguments(tmp_path / "m.keras")
    assert keras_vit.VisionTransformer(**arguments).arguments == model.arguments
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert saved_arguments(tmp_path) == MODEL and saved_arguments("ViT-B/16") is None
    keras.Sequential([keras.Input((4,))]).save(tmp_path / "foreign.keras")
    with pytest.raises(ValueError, match=r"VisionTransformer.*foreign\.keras, a Sequential"):
        saved_arguments(tmp_path / "foreign.keras")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(100), b"not a model"])
def test_damaged_keras_files_are_named(content, tmp_path):
    (tmp_path / "model.keras").write_bytes(content)
    for read in (load_model, saved_arguments):
        with pytest.raises(ValueError, match=r"zip arch.*model\.keras is damaged or of another ki"):
            read(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "many.keras", "w") as archive:
        archive.writestr("config.json", '{"class_name": "V", "config": {"num_layers": 4000}}')
    with pytest.raises(ValueError, match=r"many\.keras cannot be .*: it claims 4000 blocks, and"):
        load_model(tmp_path / "many.keras")


@pytest.mark.parametrize("member", ["config.json", "model.weights.h5", "labels.txt"])
def test_a_bomb_is_not_unpacked(member, tmp_path):
    read, begin = (labels_of, b"TFL3") if member == "labels.txt" else (load_model, b"")
    file = tmp_path / ("m.tflite" if begin else "m.keras")
    file.write_bytes(begin)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, bytes(2**25))
    with pytest.raises(ValueError, match=r"its members claim 33554432 bytes, and the file has \d+"):
        read(file)


@pytest.mark.rows(
    (b"[]", "expected an object, received a list"),
    (b"{}", "it has no key of a config"),
    (b'{"model": ' * 20_000 + b"1" + b"}" * 20_000, "recursion"),
    (b"{", "Expecting property name"),
    (b"\xff\xfe", "can't decode byte"),
    (b'{"seed": 0}', "data, what the run was trained on, is missing or incomplete"),
    ({"data": {**DATA, "class_names": 3}}, "data, what the run was trained on"),
    ({"model": 5}, "model is 5"),
    ({"seed": "1"}, "seed is '1', expected a whole number"),
    ({"few_shot": {**WHOLE["few_shot"], "shots": 3}}, "few_shot.shots is 3"),
)
def test_damage_of_a_config_is_named(content, reason, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(WHOLE))
    assert read_run_config(file) == WHOLE
    file.write_bytes(json.dumps(WHOLE | content).encode() if isinstance(content, dict) else content)
    for read in (read_run_config, lambda _: saved_arguments(tmp_path)):
        with pytest.raises(ValueError, match=r"config of a run\. .* is damaged") as error:
            read(file)
        assert str(file) in str(error.value) and reason in str(error.value)
        assert len(str(error.value).splitlines()) == 1


def test_the_texts_beside_an_export(tmp_path):
    (tmp_path / "assets").mkdir()
    interface = tmp_path / "assets" / "interface.json"
    assert labels_of(tmp_path) is None and interface_of(tmp_path) == {}
    for activation in ("softmax", "sigmoid", "none", None):
        written = {"preprocessing": "decode|resize(8)", "activation": activation}
        interface.write_text(json.dumps(written))
        assert interface_of(tmp_path) == written
    cases = [(b"\xff", "UTF-8"), (b"[]", "no object"), (b"{", "Expecting property name")]
    cases += [(b'{"preprocessing": 5}', "its preprocessing is 5")]
    cases += [(b'{"activation": ["softmax"]}', r"its activation is \['softmax'\]")]
    for content, reason in cases:
        interface.write_bytes(content)
        with pytest.raises(ValueError, match=f"damaged: .*{reason}.*Export the model again"):
            interface_of(tmp_path)
    (tmp_path / "assets" / "labels.txt").write_bytes(b"crow\n\xe9\n")
    with pytest.raises(ValueError, match=r"Expected a text in UTF-8. Received: .*labels\.txt"):
        labels_of(tmp_path)


def test_a_run_is_behind_its_folder_and_its_model_file(tmp_path):
    text = schema.to_json(schema.complete(COMPLETE.to_dict() | {"checkpoint": "augreg/B_16"}), DATA)
    (tmp_path / "config.json").write_text(text)
    for source in (tmp_path, tmp_path / "model.keras"):
        assert [*runs_behind(source)] == []
    (tmp_path / "metrics.csv").write_text("step")
    for source in (tmp_path, tmp_path / "model.keras"):
        ((name, config),) = runs_behind(source)
        assert (name, config["checkpoint"]) == (str(source), "augreg/B_16")
