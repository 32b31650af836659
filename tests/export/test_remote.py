"""One walk through a store in memory: data, training, its report, predictions, exports."""

import pytest
from etils import epath

from keras_vit.__main__ import main
from keras_vit.training.io import remote_stores
from tests.odd_photos import CASES
from tests.training.conftest import TINY

pytestmark = pytest.mark.long


def trained(bucket):
    options = [f"--config={TINY}", f"--workdir={bucket}/run", f"--data_dir={bucket}/tfds"]
    steps = ["--config.total_steps=40", "--config.checkpoint_every_steps=20", "--config.report"]
    return main(["train", *options, *steps])


@pytest.fixture(scope="module")
def run(ram):
    bucket = epath.Path(ram())
    assert trained(bucket) == 0
    return bucket / "run"


def test_the_run_is_in_the_store_and_the_same_command_finds_it_finished(run):
    names, checkpoint = {*remote_stores.files_below(run)}, "checkpoints/checkpoint-40"
    assert names >= {"config.json", "metrics.csv", "model.keras", "report.html", "evaluation.npz"}
    assert names >= {f"{checkpoint}/manifest.json", f"{checkpoint}/part-0.safetensors"}
    assert any(name.startswith("tensorboard/events.out.tfevents.") for name in names)
    assert not any(name.endswith((".lock", ".unfinished")) for name in names)
    before = (run / "metrics.csv").read_text()
    assert before.splitlines()[-1].startswith("40,")
    assert str(run.parent / "tfds") in (run / "config.json").read_text()
    assert (run.parent / "tfds" / "sklearn_digits" / "1.0.0" / "dataset_info.json").exists()
    assert trained(run.parent) == 0 and (run / "metrics.csv").read_text() == before


def test_report_evaluation_and_predictions(run, capsys, printed):
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")
    data = [f"--data_dir={run.parent}/tfds", "--dataset=digits"]
    assert main(["evaluate", str(run), *data, f"--output={run.parent}/scores"]) == 0
    assert "top1" in (run.parent / "scores" / "metrics.json").read_text()
    photo = run.parent / "photos" / "a.png"
    photo.parent.mkdir(parents=True)
    photo.write_bytes(CASES["palette"][0])
    page = run.parent / "page.html"
    capsys.readouterr()
    assert len(printed("predict", run, photo, "--csv", f"--output={page}").splitlines()) == 6
    assert "a.png" in page.read_text()


@pytest.mark.rows(("hub", "module"), ("tflite", "digits.tflite"), ("npz", "digits.npz"))
def test_exports_go_there_and_are_verified_from_there(command, name, run):
    artifact = run.parent / name
    assert main(["export", command, str(run), f"--output={artifact}", "--count=20"]) == 0
    assert main(["export", "verify", str(artifact), f"--against={run}", "--count=20"]) == 0
