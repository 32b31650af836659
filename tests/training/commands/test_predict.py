import csv
import io
import json
import os
import shutil

import pytest
from PIL import Image

import keras_vit
from benchmarks.errors_in_runtimes import with_noise
from keras_vit import export
from keras_vit.__main__ import main
from keras_vit.checkpoints.torch_layouts import HUGGING_FACE_VIT
from keras_vit.training.configs import finetune
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos
from tests.training.runs import write_run_config

NAMES = ["crow", "great <tit>"]
PREPROCESS = "decode|resize_small(20)|central_crop(16)|value_range(-1,1)"


@pytest.fixture(scope="module")
def model():
    model = with_noise(tiny_vit(patch_size=8, num_classes=2, num_layers=1))
    model.class_names, model.preprocessing = NAMES, PREPROCESS
    return model


@pytest.fixture(scope="module")
def sources(model, tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    (root / "run").mkdir()
    for file in ("run/model.keras", "m.keras"):
        model.save(root / file)
    config = {"dataset": "folder:/gone", "data_dir": "", "eval_preprocess": PREPROCESS}
    write_run_config(root / "run", **config, loss="softmax")
    export.to_hub(model, root / "module")
    export.to_tflite(model, root / "m.tflite")
    export.to_tflite(model, root / "probabilities.tflite", probabilities=True)
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder, exif = tmp_path_factory.mktemp("photos"), Image.Exif()
    exif[0x0112] = 6
    write_photos(folder, [f"{number}.png" for number in range(3)])
    for file in folder.iterdir():
        Image.open(file).save(file, exif=exif)
    return folder


@pytest.mark.parametrize("name", ["run", "m.keras", "module", "m.tflite", "probabilities.tflite"])
def test_every_source_gives_the_models_answer(name, sources, photos, model, printed):
    found = json.loads(printed("predict", sources[name], photos, "--json"))
    files = sorted(photos.iterdir())
    assert [each["file"] for each in found] == list(map(str, files))
    for each, classes in zip(found, keras_vit.predict(model, files), strict=True):
        probabilities = {one["class"]: one["probability"] for one in each["classes"]}
        assert list(probabilities) == [name for name, _ in classes]
        assert probabilities == pytest.approx(dict(classes), abs=1e-4)
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_tables_pages_and_unreadable_photos(sources, photos, tmp_path, capsys, printed):
    # Of a name that is not UTF-8.
    folder, labels, page = tmp_path / "photos", tmp_path / "labels.txt", tmp_path / "page.html"
    folder.mkdir()
    for name in (b"0.png", b"\xe9.png"):
        shutil.copy(photos / "0.png", os.fsdecode(os.fsencode(folder) + b"/" + name))
    (folder / "1.png").write_bytes(b"no image")
    labels.write_text("uno\ndue <2>\n")
    options = [str(sources["run"]), str(folder), f"--output={page}"]
    assert main(["predict", *options, "--top=1", "--csv"]) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [row["file"] for row in rows] == [f"{folder}/{name}.png" for name in ("0", "\\xe9")]
    assert {row["rank"] for row in rows} == {"1"} and rows[0]["class"] in NAMES
    assert f"Left out: {folder / '1.png'} cannot be read as an image" in captured.err
    text = page.read_text()
    counts = [text.count(f'alt="{name} of') for name in ("image", "attention", "evidence")]
    assert counts == [2, 2, 2]
    assert "\\xe9.png" in text and "http" not in text

    options = [str(sources["m.tflite"]), *options[1:], f"--labels={labels}"]
    assert "due <2>" in printed("predict", *options)
    text = page.read_text()
    assert 'alt="attention of' not in text and "due &lt;2&gt;" in text and "<2>" not in text


def test_bad_use_is_one_line(sources, photos, tmp_path, refused):
    (tmp_path / "notes.jpg").write_text("no image")
    (tmp_path / "none.txt").touch()
    run, whole = sources["run"], sources["m.tflite"].read_bytes()
    (tmp_path / "half.tflite").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "end.tflite").write_bytes(whole[: int(0.9999 * len(whole))])
    for arguments, message in (
        ([run], "/gone does not exist"),  # What the run held out is gone.
        ([run, tmp_path / "nowhere.jpg"], "nowhere.jpg, which does not exist"),
        ([run, tmp_path / "notes.jpg"], "notes.jpg cannot be read as an image"),
        ([tmp_path / "nowhere"], "nowhere, which does not exist"),
        ([tmp_path / "a.tflite", photos], "a.tflite, which does not exist"),
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
        error = refused("predict", *arguments)
        assert message in error and error.startswith("error: ") and error.count("\n") == 1, error


def test_a_folder_of_hugging_face_predicts_and_is_fine_tuned(photos, tmp_path, printed, refused):
    """Small weights of transformers' names, and its config written by hand."""
    model = with_noise(tiny_vit(num_classes=2, gelu="erf"))
    keras_vit.save_checkpoint(model, tmp_path / "model.safetensors", HUGGING_FACE_VIT)
    config = {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 2, "patch_size": 4}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "layer_norm_eps": 1e-6}
    config |= {"image_size": 16, "id2label": dict(enumerate(NAMES))}
    (tmp_path / "config.json").write_text(json.dumps(config))
    normalization = {"image_mean": 0.5, "image_std": 0.5, "size": 16, "resample": 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(normalization))
    model.preprocessing = "decode|resize([16,16],'bicubic',True)|value_range(-1,1)"
    expected = keras_vit.predict(model, sorted(photos.iterdir()), top=2)
    found = json.loads(printed("predict", tmp_path, photos, "--json"))
    for each, row in zip(found, expected, strict=True):
        probabilities = {one["class"]: one["probability"] for one in each["classes"]}
        # TensorFlow does not round where Pillow does.
        assert probabilities == pytest.approx({NAMES[int(i)]: p for i, p in row}, abs=2e-3)
    arguments, checkpoint = finetune.architecture_of(str(tmp_path))
    assert checkpoint == str(tmp_path) and "num_classes" not in arguments
    assert {k: arguments[k] for k in ("hidden_size", "num_heads")} == {
        "hidden_size": 16,
        "num_heads": 2,
    }
    assert "for a checkpoint alone" in refused("predict", tmp_path, photos, "--num_classes=3")


def test_a_model_without_a_head_is_refused(photos, tmp_path, refused):
    features = tiny_vit(patch_size=8, num_classes=None, num_layers=1)
    features.save(tmp_path / "features.keras")
    export.to_hub(features, tmp_path / "module")
    export.to_tflite(features, tmp_path / "features.tflite")
    for name in ("features.keras", "module", "features.tflite"):
        assert "Expected a model with a head" in refused("predict", tmp_path / name, photos)
