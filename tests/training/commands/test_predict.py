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


def test_tables_pages_other_names_and_photos_that_cannot_be_read(sources, photos, tmp_path, capsys):
    # Of a name that is not UTF-8.
    folder, labels, page = tmp_path / "photos", tmp_path / "labels.txt", tmp_path / "page.html"
    folder.mkdir()
    for name in (b"0.png", b"\xe9.png"):
        shutil.copy(photos / "0.png", os.fsdecode(os.fsencode(folder) + b"/" + name))
    (folder / "1.png").write_bytes(b"no image")
    labels.write_text("uno\ndue <2>\n")
    options = [str(sources["run"]), str(folder), f"--output={page}"]
    assert predict.main([*options, "--top=1", "--csv"]) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [row["file"] for row in rows] == [f"{folder}/{name}.png" for name in ("0", "\\xe9")]
    assert {row["rank"] for row in rows} == {"1"} and rows[0]["class"] in NAMES
    assert f"Left out: {folder / '1.png'} cannot be read as an image" in captured.err
    text = page.read_text()
    assert text.count('alt="image of') == text.count('alt="attention of') == 2
    assert "\\xe9.png" in text and "http" not in text

    options = [str(sources["m.tflite"]), *options[1:], f"--labels={labels}"]
    assert predict.main(options) == 0
    assert "due <2>" in capsys.readouterr().out
    text = page.read_text()
    assert 'alt="attention of' not in text and "due &lt;2&gt;" in text and "<2>" not in text


def test_bad_use_is_one_line(sources, photos, tmp_path, capsys):
    (tmp_path / "notes.jpg").write_text("no image")
    (tmp_path / "none.txt").touch()
    whole = sources["m.tflite"].read_bytes()
    for name, part in (("half", 0.5), ("end", 0.9999)):
        (tmp_path / f"{name}.tflite").write_bytes(whole[: int(part * len(whole))])
    run = sources["run"]
    for arguments, message in (
        # What the run held out is gone.
        ([run], "/gone does not exist"),
        ([run, tmp_path / "nowhere.jpg"], "nowhere.jpg, which does not exist"),
        ([run, tmp_path / "notes.jpg"], "notes.jpg cannot be read as an image"),
        ([tmp_path / "nowhere"], "nowhere does not exist."),
        ([run, photos, f"--labels={tmp_path / 'none.txt'}"], "2 classes. Received: 0 names."),
        ([tmp_path / "nothing", photos], "nothing, which does not exist"),
        ([tmp_path / "notes.jpg", run], "Expected the model before the photos"),
        ([photos, run], f"Received: {run}, a model, in a photo's place."),
        ([run, photos, "--workers=2"], "--cluster=ADDRESS with --workers"),
        (["x.npz", photos, "--model=ViT-B/16"], "--num_classes"),
        ([tmp_path / "half.tflite", photos], "half.tflite cannot be run by LiteRT"),
        ([tmp_path / "end.tflite", photos], "the end of the file is missing"),
        ([run, photos, "--json", "--csv"], "not allowed"),
        ([run, photos, "--split=train"], "--dataset=NAME with --split"),
        ([run, "--dataset=digits"], "Expected --shards=DIR"),
        ([run, photos, "--representation"], "Expected --shards=DIR"),
        ([run, photos, "--cluster=local"], "Expected --shards=DIR"),
        ([run, photos, "--shards=x", "--csv"], "without --output, --json and --csv"),
    ):
        assert predict.main(list(map(str, arguments))) == 2, arguments
        error = capsys.readouterr().err
        assert message in error and error.startswith("error: ") and error.count("\n") == 1, error


def test_a_model_without_a_head_is_refused(photos, tmp_path, capsys):
    features = tiny_vit(patch_size=8, num_classes=None, num_layers=1)
    features.save(tmp_path / "features.keras")
    export.to_hub(features, tmp_path / "module")
    export.to_tflite(features, tmp_path / "features.tflite")
    for name in ("features.keras", "module", "features.tflite"):
        assert predict.main([str(tmp_path / name), str(photos)]) == 2, name
        assert "Expected a model with a head" in capsys.readouterr().err
