"""`predict`: one answer from a run and all that is made of it."""

import csv
import io
import json
import os
import shutil

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import export
from keras_vit.training.commands import predict
from tests.run_config import write_run_config
from tests.tiny_vit import tiny_vit

NAMES = ["crow", "great <tit>"]
PREPROCESS = "decode|resize_small(20)|central_crop(16)|value_range(-1,1)"


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = tiny_vit(patch_size=8, num_classes=2, num_layers=1)
    model.get_layer("head").kernel.assign(keras.random.normal((16, 2), seed=1))
    model.class_names, model.preprocessing = NAMES, PREPROCESS
    return model


@pytest.fixture(scope="module")
def sources(model, tmp_path_factory):
    """A run whose data is gone, and everything that is made of it."""
    root = tmp_path_factory.mktemp("sources")
    run = root / "run"
    run.mkdir()
    model.save(run / "model.keras")
    config = {"dataset": "folder:/gone", "data_dir": "", "eval_preprocess": PREPROCESS}
    write_run_config(run, **config, loss="softmax")
    model.save(root / "m.keras")
    export.to_hub(model, root / "module")
    export.to_tflite(model, root / "m.tflite")
    export.to_tflite(model, root / "probabilities.tflite", probabilities=True)
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (24, 36, 3)).astype(np.uint8)
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.fromarray(pixels).save(folder / f"{number}.png", exif=exif)
    return folder


def answers(capsys, *arguments):
    assert predict.main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["run", "m.keras", "module", "m.tflite", "probabilities.tflite"])
def test_every_source_gives_the_models_answer(name, sources, photos, model, capsys):
    found = answers(capsys, sources[name], photos)
    files = sorted(photos.iterdir())
    assert [each["file"] for each in found] == list(map(str, files))
    expected = keras_vit.predict(model, files)
    for each, classes in zip(found, expected, strict=True):
        assert [one["class"] for one in each["classes"]] == [name for name, _ in classes]
        probabilities = [one["probability"] for one in each["classes"]]
        np.testing.assert_allclose(probabilities, [p for _, p in classes], atol=1e-4)
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)


def test_tables_csv_and_other_names(sources, photos, tmp_path, capsys):
    photo = photos / "1.png"
    assert predict.main([str(sources["run"]), str(photo), "--top=1", "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["file"] == str(photo) and row["rank"] == "1" and row["class"] in NAMES
    labels = tmp_path / "labels.txt"
    labels.write_text("uno\ndue\n")
    assert predict.main([str(sources["run"]), str(photo), f"--labels={labels}"]) == 0
    assert {"uno", "due"} <= set(capsys.readouterr().out.split())


def test_a_page_with_the_rollout_beside_each_photo(sources, photos, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert predict.main([str(sources["run"]), str(photos), f"--output={page}"]) == 0
    text = page.read_text()
    assert text.count('alt="image of') == text.count('alt="attention of') == 3
    assert "great &lt;tit&gt;" in text and "<tit>" not in text
    assert "http" not in text
    assert predict.main([str(sources["m.tflite"]), str(photos), f"--output={page}"]) == 0
    assert 'alt="attention of' not in page.read_text()


def test_bad_use_is_one_line(sources, photos, tmp_path, capsys):
    (tmp_path / "notes.jpg").write_text("no image")
    (tmp_path / "labels.txt").write_text("one\n")
    (tmp_path / "none.txt").touch()
    (tmp_path / "broken.tflite").write_text("no model")
    whole = sources["m.tflite"].read_bytes()
    for name, part in (("half", 0.5), ("end", 0.9999)):
        (tmp_path / f"{name}.tflite").write_bytes(whole[: int(part * len(whole))])
    run = sources["run"]
    for arguments, message in (
        # What the run held out is gone.
        ([run], "/gone does not exist"),
        ([run, tmp_path / "nowhere.jpg"], "nowhere.jpg, which does not exist"),
        ([run, tmp_path / "notes.jpg"], "notes.jpg cannot be read as an image"),
        ([run, tmp_path / "notes.jpg", tmp_path / "notes.jpg"], "notes.jpg, /"),
        ([tmp_path / "notes.jpg", run], "Expected the model before the photos"),
        ([photos, run], f"Received: {run}, a model, in a photo's place."),
        ([tmp_path / "nowhere"], "nowhere alone, which is no run directory"),
        ([run, photos, "--top=0"], "--top"),
        ([run, photos, f"--labels={tmp_path / 'labels.txt'}"], "a name for each of 2 classes"),
        ([run, photos, f"--labels={tmp_path / 'none.txt'}"], "2 classes. Received: 0 names."),
        ([run, ""], "Expected a path"),
        ([run, "ftp://host/photo.jpg"], "Expected a path"),
        ([tmp_path / "nothing", photos], "nothing, which does not exist"),
        ([tmp_path / "broken.tflite", photos], "broken.tflite"),
        ([tmp_path / "m.onnx", photos], "m.onnx, an ONNX file, which keras-vit export verify"),
        ([tmp_path / "half.tflite", photos], "half.tflite cannot be run by LiteRT"),
        ([tmp_path / "end.tflite", photos], "the end of the file is missing"),
        (["x.npz", photos, "--model=ViT-B/16"], "--num_classes"),
        ([run, photos, "--json", "--csv"], "not allowed"),
        ([run, photos, "--split=train"], "--dataset=NAME with --split"),
        ([run, photos, "--num_classes=7"], "for a checkpoint alone"),
    ):
        assert predict.main(list(map(str, arguments))) == 2, arguments
        error = capsys.readouterr().err
        assert message in error and error.startswith("error: ") and error.count("\n") == 1, error


def test_unreadable_photos_are_named_and_left_out(sources, photos, tmp_path, capsys):
    for name in ("0.png", "2.png"):
        shutil.copy(photos / name, tmp_path)
    (tmp_path / "1.png").write_bytes(b"no image")
    assert predict.main([str(sources["run"]), str(tmp_path), "--csv", "--top=1"]) == 0
    captured = capsys.readouterr()
    rows = csv.DictReader(io.StringIO(captured.out))
    assert [row["file"] for row in rows] == [str(tmp_path / name) for name in ("0.png", "2.png")]
    assert f"Left out: {tmp_path / '1.png'} cannot be read as an image" in captured.err


def test_a_model_without_a_head_is_refused(photos, tmp_path, capsys):
    features = tiny_vit(patch_size=8, num_classes=None, num_layers=1)
    features.save(tmp_path / "features.keras")
    export.to_hub(features, tmp_path / "module")
    export.to_tflite(features, tmp_path / "features.tflite")
    for name in ("features.keras", "module", "features.tflite"):
        assert predict.main([str(tmp_path / name), str(photos)]) == 2, name
        assert "Expected a model with a head" in capsys.readouterr().err


def test_names_that_are_not_utf_8(sources, photos, tmp_path, capsys):
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.png")
    shutil.copy(photos / "0.png", file)
    (found,) = answers(capsys, sources["run"], tmp_path)
    assert found["file"] == f"{tmp_path}/\\xe9.png"
    for shown in ("--csv", f"--output={tmp_path}/page.html"):
        assert predict.main([str(sources["run"]), str(tmp_path), shown]) == 0
    assert "\\xe9.png" in (tmp_path / "page.html").read_text()
