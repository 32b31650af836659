"""One walk through a store in memory: data, training, its report, predictions, exports."""

import io
import pathlib

import keras
import numpy as np
import pytest
from etils import epath

from keras_vit.export.__main__ import main as export
from keras_vit.training.commands import evaluate, predict, report, train
from keras_vit.training.io import stores

pytestmark = pytest.mark.long

TINY = pathlib.Path(__file__).parents[1] / "training" / "processes" / "tiny.py"


@pytest.fixture(scope="module")
def run(ram):
    """The address of a run that was trained in a store, with its data."""
    bucket = epath.Path(ram())
    options = [f"--config={TINY}", f"--workdir={bucket}/run", f"--data_dir={bucket}/tfds"]
    steps = ["--config.total_steps=40", "--config.checkpoint_every_steps=20", "--config.report"]
    assert train.main([*options, *steps]) == 0
    return bucket / "run"


def test_the_run_is_in_the_store(run):
    names = stores.files_below(run)
    assert {"config.json", "metrics.csv", "model.keras", "report.html", "evaluation.npz"} <= {
        *names
    }
    assert {
        f"checkpoints/checkpoint-40/{name}" for name in ("manifest.json", "part-0.safetensors")
    } <= {*names}
    assert any(name.startswith("tensorboard/events.out.tfevents.") for name in names)
    assert not any(name.endswith((".lock", ".unfinished")) for name in names)
    assert (run / "metrics.csv").read_text().splitlines()[-1].startswith("40,")
    assert str(run.parent / "tfds") in (run / "config.json").read_text()
    assert (run.parent / "tfds" / "sklearn_digits" / "1.0.0" / "dataset_info.json").exists()


def test_the_same_command_finds_it_finished(run):
    before = (run / "metrics.csv").read_text()
    options = [f"--config={TINY}", f"--workdir={run}", f"--data_dir={run.parent}/tfds"]
    steps = ["--config.total_steps=40", "--config.checkpoint_every_steps=20", "--config.report"]
    assert train.main([*options, *steps]) == 0
    assert (run / "metrics.csv").read_text() == before


def test_report_evaluation_and_predictions(run, capsys):
    (run / "report.html").unlink()
    assert report.main([str(run)]) == 0
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")

    data = [f"--data_dir={run.parent}/tfds", "--dataset=digits"]
    assert evaluate.main([str(run), *data, f"--output={run.parent}/scores"]) == 0
    assert "top1" in (run.parent / "scores" / "metrics.json").read_text()

    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3)).astype(np.uint8)
    stream = io.BytesIO()
    keras.utils.save_img(stream, pixels, file_format="png")
    photo = run.parent / "photos" / "a.png"
    photo.parent.mkdir(parents=True)
    photo.write_bytes(stream.getvalue())
    page = run.parent / "page.html"
    capsys.readouterr()
    assert predict.main([str(run), str(photo), "--csv", f"--output={page}"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert "a.png" in page.read_text()


@pytest.mark.parametrize(
    ("command", "name", "file"),
    [
        ("hub", "module", "saved_model.pb"),
        ("tflite", "digits.tflite", ""),
        ("npz", "digits.npz", ""),
    ],
)
def test_exports_go_there_and_are_verified_from_there(run, command, name, file):
    artifact = run.parent / name
    assert export([command, str(run), f"--output={artifact}", "--count=20"]) == 0
    assert (artifact / file if file else artifact).exists()
    assert export(["verify", str(artifact), f"--against={run}", "--count=20"]) == 0
