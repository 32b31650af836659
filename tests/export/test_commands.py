import json
import os
import signal
import sys
import types
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

import keras_vit
from keras_vit.__main__ import main, script
from keras_vit.export import run_export as export_command
from keras_vit.export.run_export import load_images
from keras_vit.export.tflite.quantization import QUANTIZATIONS
from keras_vit.export.tflite.to_tflite import to_tflite
from keras_vit.export.verification import verify
from keras_vit.training.inference.interface import labels_of
from tests.export.conftest import LABELS, answer
from tests.training.runs import write_run_config

PICTURES = np.random.default_rng(5).uniform(0, 1, (40, 16, 16, 3)).astype("float32")


def run(*arguments):
    return main(["export", *map(str, arguments)])


@pytest.fixture(scope="module")
def model(make_vit):
    model = make_vit(image_size=16, patch_size=8, num_layers=1, num_classes=10)
    # As a trainer tells its model.
    model.class_names, model.activation = list("0123456789"), "sigmoid"
    return model


@pytest.fixture(scope="module")
def run_directory(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("digits")
    model.save(directory / "model.keras")
    data = {"dataset": "digits", "data_dir": "", "train_split": "train", "eval_split": "test"}
    preprocess = "decode|resize(16)|value_range(-1,1)"
    write_run_config(
        directory,
        **data,
        eval_preprocess=preprocess,
        loss="sigmoid",
        hand_over="last",
        total_steps=40,
    )
    header = "step,eval_top1,eval_top5,eval_loss,eval_count"
    (directory / "metrics.csv").write_text(f"{header}\n40,0.1,0.6,0.4,357\n")
    return directory


@pytest.fixture(autouse=True)
def costs_without_processes(monkeypatch):
    """Costs, and the processes that measure them, have tests of their own."""
    costs = {"load_seconds": 0.1, "first_call_seconds": 0.01, "latency_ms": 1.0}
    costs |= {"peak_memory_bytes": 2**20, "partitions": 1, "operations_outside_delegate": {}}
    monkeypatch.setattr(verify, "measure", lambda *_: costs)


@pytest.fixture(scope="module")
def data(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(file, images=PICTURES, labels=answer(model, PICTURES).argmax(-1))
    return file


def test_help_is_quick_because_it_imports_nothing(run_command):
    code = """
from keras_vit.__main__ import main
for words in ([], ["tflite"], ["verify"]):
    try: code = main(["export", *words, "--help"])
    except SystemExit as end: code = end.code
    print(sorted({"tensorflow", "keras", "numpy"} & set(sys.modules)), code)"""
    result = run_command(code, check=True)
    assert result.stdout.count("usage: keras-vit export") == 3
    assert "\nkeras-vit export tflite runs/quickstart --output=tflite/ --all\n" in result.stdout
    assert result.stdout.splitlines().count("[] 0") == 3


@pytest.mark.long
def test_hub_from_a_run_knows_labels_and_loss_and_is_verified(run_directory, model, tmp_path):
    report = tmp_path / "report.json"
    assert run("hub", run_directory, f"--output={tmp_path / 'm'}", f"--json={report}") == 0
    module = hub.load(str(tmp_path / "m"))
    logits = answer(model, PICTURES)
    np.testing.assert_allclose(module(PICTURES), logits, atol=1e-5)
    scores = module.signatures["serving_default"](images=tf.constant(PICTURES))["probabilities"]
    np.testing.assert_allclose(scores, tf.nn.sigmoid(logits), atol=1e-5)
    assert (tmp_path / "m/assets/labels.txt").read_text().split() == list("0123456789")
    values = json.loads(report.read_text())
    assert values["ok"] and values["images"] == 200 and values["agreement"] == 1
    assert 0 <= values["model_accuracy"] == values["artifact_accuracy"] < 0.5
    card = ["card", tmp_path / "m", f"--against={run_directory}", f"--output={tmp_path / 'out'}"]
    assert run(*card, "--handle=me/digits/1", "--license=mit") == 0
    page = (tmp_path / "out/digits.md").read_text()
    assert "| step of the model | 40 |" in page and "| images evaluated | 357 |" in page


def test_tflite_from_a_keras_file(run_directory, data, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join("abcdefghij"))
    file = tmp_path / "m.tflite"
    options = ["--quantization=int8", "--batch_sizes=2,4", "--feature_vector", "--probabilities"]
    options += [f"--output={file}", f"--labels={labels}", f"--data={data}"]
    # How well random weights quantize is not the point.
    assert run("tflite", run_directory / "model.keras", *options) in (0, 1)
    assert labels_of(file) == list("abcdefghij")
    signatures = Interpreter(str(file)).get_signature_list()
    assert set(signatures) == {"serving_default", "batch_2", "batch_4", "feature_vector"}
    assert signatures["serving_default"]["outputs"] == ["probabilities"]


@pytest.mark.long
def test_masks_of_a_run_are_exported_scored_and_predicted(segmenter, scenes, tmp_path, capsys):
    folder, source, file = (tmp_path / name for name in ("scenes", "run", "m.tflite"))
    pixels = np.rint(255 * scenes).astype("uint8")
    maps = answer(segmenter, pixels / np.float32(255)).argmax(-1)
    maps[:, :4], maps[:, 4:8] = 255, (maps[:, 4:8] + 1) % 5
    for kind, arrays in (("images", pixels), ("masks", (4 - maps).clip(0).astype("uint8"))):
        (folder / kind / "test").mkdir(parents=True)
        arrays = np.where(maps == 255, 255, arrays) if kind == "masks" else arrays
        for number, array in enumerate(arrays.astype("uint8")):
            Image.fromarray(array).save(folder / kind / "test" / f"{number}.png")
    # The classes stand in another order than the model's.
    (folder / "labels.json").write_text(json.dumps(LABELS[::-1]))
    source.mkdir()
    segmenter.save(source / "model.keras")
    preprocess = "decode|resize([32,48])|value_range(-1,1)"
    data = {"dataset": f"masks:{folder}", "data_dir": "", "eval_split": "test"}
    write_run_config(source, **data, eval_preprocess=preprocess, masks={"decoder": "mask"})

    metric = keras.metrics.MeanIoU(5, ignore_class=255)
    metric.update_state(maps, answer(segmenter, pixels / np.float32(255)).argmax(-1))
    expected, report = float(metric.result()), tmp_path / "report.json"
    options = [f"--output={file}", "--quantization=none", f"--json={report}"]
    assert run("tflite", source, *options) == 0
    values = json.loads(report.read_text())
    assert values["classifies"] == "pixel" and values["agreement"] > 0.999
    assert values["model_accuracy"] == pytest.approx(expected, abs=1e-6)
    words = " ".join(capsys.readouterr().out.split())
    assert f"mean IoU of the artifact {100 * expected:.2f} % size" in words
    losses, probabilities = [], tmp_path / "probabilities.tflite"
    to_tflite(segmenter, probabilities, probabilities=True)
    for one in (source, file, probabilities):
        arguments = [f"--dataset={data['dataset']}", "--split=test", f"--output={tmp_path / 'e'}"]
        assert main(["evaluate", str(one), *arguments]) in (0, None)
        (found,) = json.loads((tmp_path / "e/metrics.json").read_text()).values()
        assert found["miou"] == pytest.approx(expected, abs=1e-6)
        losses.append(found["loss"])
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-4)
    capsys.readouterr()
    assert main(["predict", str(file), str(folder / "images/test/0.png"), "--json"]) in (0, None)
    (found,) = json.loads(capsys.readouterr().out)
    areas = {each["class"]: each["area"] for each in found["areas"]}
    mask = answer(segmenter, pixels[:1] / np.float32(255)).argmax(-1)
    assert areas == pytest.approx({LABELS[k]: (mask == k).mean() for k in np.unique(mask)})
    # A data set of other labels is no reason not to compare.
    assert run("verify", file, f"--against={source}", "--data=digits", "--count=4") == 0
    assert "No accuracy is computed" in capsys.readouterr().err


@pytest.mark.long
def test_a_page_from_a_run(with_litert_js, run_directory, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.html"
    options = ["--single-file", "--quantization=none", "--examples=2", "--title=Digits < 10"]
    read = Mock(side_effect=load_images)
    monkeypatch.setattr(export_command, "load_images", read)
    assert run("web", run_directory, f"--output={page}", *options) == 0
    read.assert_called_once()  # for the examples and for the verification
    out = capsys.readouterr().out
    assert "top-1 agreement" in out and f"python -m webbrowser {page}" in out
    text = page.read_text()
    assert "<h1>Digits &lt; 10</h1>" in text and '"activation": "sigmoid"' in text
    assert text.count("data:image/png;base64,") == 2
    assert run("verify", page, f"--against={run_directory}", "--count=20") == 0
    assert run("web", run_directory, "--litert_js=nowhere", f"--output={tmp_path / 'site'}") == 2
    assert "npm pack @litertjs/core@" in capsys.readouterr().err


def test_a_run_calibrates_by_training_and_verifies_by_evaluation(run_directory, monkeypatch):
    read = Mock(side_effect=lambda *_, **options: ([options["split"]], None))
    monkeypatch.setattr(export_command, "load_images", read)
    defaults = {"calibration": None, "dataset": None, "split": None, "data_dir": None, "count": 9}
    defaults |= {"source": run_directory, "model": None, "num_classes": None, "image_size": None}

    def splits(**options):
        options = types.SimpleNamespace(**defaults | options)
        export = export_command.Export(options)
        return export.calibration(["none", "int8"])[0], export.samples[0][0]

    assert splits() == ("train", "test")
    assert splits(split="validation") == ("train", "validation")
    assert splits(dataset="digits", split="test[:9]") == ("test[:9]", "test[:9]")
    assert splits(calibration="digits", split="test[:9]") == ("test[:9]", "test[:9]")


def test_verify_needs_images_of_its_model(run_directory, make_vit, data, tmp_path, capsys):
    source, file = run_directory / "model.keras", tmp_path / "m.tflite"
    assert run("tflite", source, f"--output={file}", "--quantization=none") == 0
    assert "not verified" in capsys.readouterr().out
    assert run("verify", file, f"--against={source}") == 2
    assert "--dataset" in capsys.readouterr().err
    assert run("tflite", source, f"--output={file}", "--calibration=digits") == 2
    assert "int8, int8-full" in capsys.readouterr().err
    other = make_vit(image_size=16, patch_size=8, num_layers=1, num_classes=10)
    other.get_layer("head").kernel.assign(other.get_layer("head").kernel[:, ::-1])
    other.save(tmp_path / "other.keras")
    report = tmp_path / "report.json"
    options = [f"--against={tmp_path / 'other.keras'}", f"--data={data}", f"--json={report}"]
    assert run("verify", file, *options) == 1 and not json.loads(report.read_text())["ok"]
    assert "above 0.0001" in capsys.readouterr().out


@pytest.mark.long
def test_checkpoints_need_their_architecture(run_directory, model, tmp_path, capsys):
    assert run("npz", run_directory, f"--output={tmp_path / 'm.npz'}") == 0
    with np.load(tmp_path / "m.npz") as arrays:
        np.testing.assert_array_equal(arrays["head/kernel"], model.get_layer("head").kernel)
    assert "largest error of logits" in capsys.readouterr().out
    model = keras_vit.create_model("ViT-Ti/16", num_classes=3, image_size=32)
    source, copy = tmp_path / "ti.npz", tmp_path / "b.npz"
    keras_vit.save_checkpoint(model, source)
    assert run("npz", source, f"--output={copy}") == 2
    assert "--model=ViT-B/16" in capsys.readouterr().err
    arguments = ["--model=ViT-Ti/16", "--image_size=32", "--num_classes=3"]
    assert run("npz", source, f"--output={copy}", *arguments) == 0
    with np.load(source) as a, np.load(copy) as b:
        np.testing.assert_equal(dict(a), dict(b))


@pytest.mark.long
def test_all_quantizations_and_their_table(run_directory, data, tmp_path, capsys):
    report = tmp_path / "report.json"
    run("tflite", run_directory, "--all", f"--output={tmp_path}", "--count=40", f"--json={report}")
    reports, table = json.loads(report.read_text()), capsys.readouterr().out
    assert [each["kind"] for each in reports] == [*QUANTIZATIONS]
    assert {each["images"] for each in reports} == {40}
    for name in QUANTIZATIONS:
        assert (tmp_path / f"{name}.tflite").exists() and name in table


@pytest.mark.long
def test_inspect_shows_the_error_of_every_layer(run_directory, make_vit, data, tmp_path, capsys):
    file, picture = tmp_path / "m.tflite", tmp_path / "layers.png"
    run("tflite", run_directory, f"--output={file}", "--quantization=int8", f"--data={data}")
    report = tmp_path / "errors.json"
    arguments = [f"--against={run_directory}", f"--output={picture}", f"--json={report}"]
    assert run("inspect", file, *arguments) == 0
    rows = json.loads(report.read_text())
    assert rows[0]["layer"] == "embedding/projection" and rows[0]["type"] == "int8"
    assert 0 < rows[-1]["error"] < 0.5
    assert "encoder_block_00/mlp/hidden_dense" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    run("tflite", run_directory, f"--output={file}", "--quantization=int8", "--probabilities")
    assert run("inspect", file, *arguments) == 0
    assert json.loads(report.read_text())[-1]["layer"] == "probabilities"
    to_tflite(make_vit(), file)
    for other, said in (
        (file, "for 32 x 32. It came from another"),
        (run_directory, "a directory"),
    ):
        assert run("inspect", other, f"--against={run_directory}") == 2
        assert said in capsys.readouterr().err


def test_damaged_and_foreign_models_are_one_line(run_directory, tmp_path, capsys):
    whole = (run_directory / "model.keras").read_bytes()
    flipped = whole[:2000] + bytes(b ^ 0xFF for b in whole[2000:2600]) + whole[2600:]
    for number, content in enumerate((b"", b"not a model", whole[: len(whole) // 2], flipped)):
        (tmp_path / f"{number}.keras").write_bytes(content)
    layers = {"foreign": keras.layers.Dense(2), "code": keras.layers.Lambda(lambda x: x + 1)}
    for name, layer in layers.items():
        keras.Sequential([keras.Input((4,)), layer]).save(tmp_path / f"{name}.keras")
    for path in (*tmp_path.iterdir(), tmp_path / "missing.keras", tmp_path):
        assert run("hub", path, f"--output={tmp_path / 'out'}") == 2, path
        error = capsys.readouterr().err.strip()
        assert error.startswith("error: ") and len(error.splitlines()) == 1, error
        assert path.name in error
    (tmp_path / "file").write_text("in the way")
    for command, output in (("hub", "file/m"), ("tflite", "file/m.tflite"), ("npz", "file/m.npz")):
        assert run(command, run_directory, f"--output={tmp_path / output}") == 2
        assert "file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_terminated_export_leaves_nothing(run_directory, tmp_path, monkeypatch):
    original = tf.saved_model.save

    def save_and_be_terminated(*args, **kwargs):
        original(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(tf.saved_model, "save", save_and_be_terminated)
    command = ["keras-vit", "export", "hub", str(run_directory), f"--output={tmp_path / 'm'}"]
    monkeypatch.setattr(sys, "argv", command)
    before = signal.getsignal(signal.SIGTERM)
    assert run("--help") == 0  # in a process of others, signals stay theirs
    assert signal.getsignal(signal.SIGTERM) is before
    try:
        with pytest.raises(SystemExit) as end:
            script()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 143 and os.listdir(tmp_path) == []
