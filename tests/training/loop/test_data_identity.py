import json
import os
import re
import shutil
import sys

import keras
import numpy as np
import pytest

from keras_vit.__main__ import main
from keras_vit.training.configs import own_photos
from keras_vit.training.data import open_dataset
from keras_vit.training.data.sets import fingerprint
from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators import few_shot
from keras_vit.training.inference import interface
from keras_vit.training.inference.image_function import RawPixels
from keras_vit.training.inference.open_model import load_model
from keras_vit.training.io import progress_bar
from keras_vit.training.loop import state, trainer
from tests.training.data.helpers import write_photos

CHANNELS = {"crow": 0, "finch": 1, "owl": 2}


def paint(root, name, count, channel):
    names = [f"{name}/{name}_{number}.png" for number in range(count)]
    write_photos(root, names, lambda place: np.full((8, 8, 1), 200 + place) * np.eye(3)[channel])


def config_of(photos, **changes):
    config = own_photos.get_config(f"{photos},size=8,steps=4")
    config.model.update(patch_size=8, hidden_size=16, mlp_dim=16, num_heads=2, num_layers=1)
    config.log_every_steps = config.eval_every_steps = config.checkpoint_every_steps = 2
    config.update({"report": False} | changes)
    return config


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("painted")
    for name, channel in CHANNELS.items():
        paint(folder / "photos", name, 10, channel)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("folder") / "folder"


@pytest.fixture(scope="module")
def trained(painted, place):
    shutil.copytree(painted, place, dirs_exist_ok=True)
    trainer.train(config_of(place / "photos", report=True), place / "run")
    return shutil.copytree(place / "run", painted.with_name("run"))


@pytest.fixture
def photos(painted, place):
    """The photos as the run has seen them, in the folder that its config names."""
    shutil.rmtree(place, ignore_errors=True)
    return shutil.copytree(painted, place) / "photos"


@pytest.fixture
def run(trained, photos):
    return shutil.copytree(trained, photos.with_name("run"))


def refusal(photos, run, **changes):
    """Returns the one line in which a run on changed photos ends, with all its files as before."""
    before = {file: file.is_file() and file.read_bytes() for file in run.rglob("*")}
    with pytest.raises(UsageError) as error:
        trainer.train(config_of(photos, **changes), run)
    assert {file: file.is_file() and file.read_bytes() for file in run.rglob("*")} == before
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.long
def test_a_class_is_accepted_that_keeps_its_label_and_no_other(photos, run, caplog):
    (photos / "crow").rename(photos / "raven")
    for choice in ("refuse", "accept"):
        message = refusal(photos, run, data_changed=choice)
        assert "the class crow is called raven" in message and "accept" not in message
    (photos / "raven").rename(photos / "coot")
    assert "the class crow is called coot" in (message := refusal(photos, run))
    assert "data_changed=accept" in message
    trainer.train(config_of(photos, data_changed="accept", report=True), run)
    assert keras.saving.load_model(run / "model.keras").class_names == ("coot", "finch", "owl")
    # The evaluations are of the same photos.
    assert "top-1 accuracy<" in (run / "report.html").read_text()
    os.utime(photos / "coot" / "crow_0.png", (0, 0))
    for _ in range(2):
        trainer.train(config_of(photos), run)
    assert caplog.text.count("were written since") == 2


@pytest.mark.long
def test_a_run_by_epochs_keeps_its_steps(photos, run, tmp_path, caplog, capsys):
    epochs = {"epochs": 1.0, "total_steps": 0, "batch_size": 6, "eval_every_steps": 2}
    trainer.train(config_of(photos, **epochs), tmp_path / "run")
    steps = json.loads((tmp_path / "run" / "config.json").read_text())["total_steps"]
    paint(photos, "crow", 40, 0)
    assert "photos of crow instead of" in refusal(photos, tmp_path / "run", **epochs)
    message = refusal(photos, tmp_path / "run", **epochs, data_changed="accept")
    assert (
        "The run has ended: put the data back, or train its model on what is there now: " in message
    )
    (tmp_path / "run" / "model.keras").unlink()  # Unfinished.
    shutil.rmtree(max((tmp_path / "run" / "checkpoints").iterdir()))
    for choice in ("accept", "refuse"):
        trainer.train(config_of(photos, data_changed=choice, **epochs), tmp_path / "run")
        assert json.loads((tmp_path / "run" / "config.json").read_text())["total_steps"] == steps
    assert caplog.text.count("It is accepted.") == 1
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert "Other data was accepted while it trained. Photos may have changed sides" in said
    assert "epochs: 1.0 -> 2.0" in refusal(photos, tmp_path / "run", **{**epochs, "epochs": 2.0})


@pytest.mark.long
def test_evaluations_before_a_change_are_never_the_best(photos, run, monkeypatch):
    (photos / "crow").rename(photos / "coot")
    shutil.rmtree(max((run / "checkpoints").iterdir()))
    (run / "model.keras").unlink()
    known, update = [], state.BestEvaluation.update

    def watched(best, *arguments):
        known.append(best.step)
        return update(best, *arguments)

    monkeypatch.setattr(state.BestEvaluation, "update", watched)
    trainer.train(config_of(photos, data_changed="accept"), run)
    assert known == [0]
    # The data before, and its state, but the best model of the other: stopped at once, and again.
    shutil.rmtree(max((run / "checkpoints").iterdir()))
    (run / "model.keras").unlink()
    (photos / "coot").rename(photos / "crow")
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(trainer._Run, "_say_where_it_begins", lambda _: sys.exit())
        trainer.train(config_of(photos, data_changed="accept"), run)
    assert not (run / "best.keras").exists()
    trainer.train(config_of(photos), run)
    assert known == [0, 0] and (run / "best.keras").exists()
    assert json.loads((run / "config.json").read_text())["data"]["accepted_after"] == 2
    # A finished run has handed it over.
    expected = keras.saving.load_model(run / "model.keras").get_weights()
    (run / "best.keras").unlink()
    trainer.train(config_of(photos), run)
    assert all(map(np.array_equal, expected, load_model(run).model.get_weights()))
    # One that has not handed it over cannot any more.
    trainer.train(config_of(photos, hand_over="last"), run)
    with pytest.raises(UsageError, match=r"best\.keras is not there any more"):
        trainer.train(config_of(photos, hand_over="best"), run)


@pytest.mark.long
def test_photos_that_trained_what_one_starts_from_are_said(photos, run, tmp_path, caplog, capsys):
    others = shutil.copytree(photos, tmp_path / "others")
    for number, photo in enumerate(sorted(others.glob("*/*"), reverse=True)):
        photo.rename(photo.with_name(f"{number}.png"))

    def content(folder, split):
        found = open_dataset(f"folder:{folder}").split(split).photos
        return {(folder / photo.path).read_bytes() for photo in found}

    shared = len(content(others, "train[80%:]") & content(photos, "train[:80%]"))
    assert 0 < shared < 6
    further = {"checkpoint": str(run), "total_steps": 2}
    trainer.train(config_of(others, **further), tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["data"]["checkpoint"] == fingerprint.digest_of_checkpoint(str(run)) != ""
    (warning,) = (text for text in caplog.messages if "was trained on" in text)
    assert warning.startswith(f"{shared} of the 6 images of train[80%:]")
    # Of the run that it began from, too.
    main(["evaluate", str(tmp_path / "run"), f"--dataset=folder:{photos}", "--split=train"])
    said = capsys.readouterr().err
    assert "24 of the 30 images of train, which is scored" in said and f"which {run} was" in said
    for more in ([], ["--split=train"]):
        main(["evaluate", str(run), *more])
        assert ("24 of the 30 images of train, which" in capsys.readouterr().err) == bool(more)
    caplog.clear()
    trainer.train(config_of(photos, **further), tmp_path / "own")
    assert "was trained on" not in caplog.text
    # Of a folder without a model, and of another run, nothing is known.
    for other in (tmp_path / "none", tmp_path / "own"):
        other.mkdir(exist_ok=True)
        shutil.rmtree(run)
        shutil.copytree(other, run)
        main(["evaluate", str(tmp_path / "run")])
        assert f"what trained {run}, from which {tmp_path / 'run'} began" in capsys.readouterr().err


@pytest.mark.long
def test_a_state_of_other_data_is_not_resumed(photos, run, tmp_path):
    other = tmp_path / "other"
    paint(photos, "owl", 11, 2)
    trainer.train(config_of(photos), other)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(other / "checkpoints", run / "checkpoints")
    (photos / "owl" / "owl_10.png").unlink()
    assert "other data than the config.json" in refusal(photos, run)


def test_a_run_lists_its_folder_once(photos, tmp_path, monkeypatch, caplog):
    listed, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    config = config_of(photos, report=True)
    config.few_shot.update(datasets=config.dataset, shots=(1,))
    monkeypatch.setattr(few_shot, "SPLITS", {config.dataset: ("train[:80%]", "train[80%:]")})
    caplog.set_level("INFO", "keras_vit")
    monkeypatch.setattr(progress_bar, "LOG_EVERY_SECONDS", -1)
    trainer.train(config, tmp_path / "run")
    # Each folder of a class and the one around them.
    folders = sorted(map(str, (photos, *photos.iterdir())))
    assert sorted(each for each in listed if str(photos) in each) == folders
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<h1>run: photos</h1>" in page and "6 images of the held-out fifth." in page
    assert "drawing report.html: 0 of 1" in caplog.text
    assert "Few images of train[80%:] are evaluated: crow (2)" in caplog.text


def test_few_shot_images_are_none_that_train_and_photos_stay(photos, tmp_path, monkeypatch, caplog):
    others = f"folder:{shutil.copytree(photos, tmp_path / 'others')}"
    monkeypatch.setattr(few_shot, "SPLITS", {others: ("train[80%:]", "train[:80%]")})
    config, run = config_of(photos, total_steps=2), tmp_path / "run"
    config.few_shot.update(datasets=others, shots=(1,))
    file = photos / "crow" / "crow_0.png"
    before = file.stat()
    with monkeypatch.context() as patch:
        patch.setattr(trainer._Run, "_report_skipped", lambda _: os.utime(file, (0, 0)))
        trainer.train(config, run)
    assert re.search(r"crow_0\.png was replaced while .* before was read as well", caplog.text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "24 of the 24 images of train[:80%], which is scored, are in train[:80%]" in caplog.text
    os.utime(next((tmp_path / "others" / "owl").iterdir()), (1, 1))
    trainer.train(config, run)
    assert f"Files of the data of {run} were written since" in caplog.text
    (tmp_path / "others" / "crow").rename(tmp_path / "others" / "wren")
    config.data_changed = "accept"
    (run / "model.keras").unlink()  # of a run that was killed after its last step
    with pytest.raises(UsageError, match=r"config\.few_shot are others\. The run has ended"):
        trainer.train(config, run)


def test_cached_features_are_of_the_photos_with_their_labels(photos, tmp_path):
    model = RawPixels()

    def accuracy():
        task = few_shot.open_task(open_dataset(f"folder:{photos}"), "train[:80%]", "train[80%:]")
        settings = {"shots": [5], "seeds": [0], "l2": 1e-6, "cache": tmp_path / "cache"}
        found = few_shot.evaluate(model, task, preprocess=model.interface.preprocessing, **settings)
        return found[5, 0, 1e-6]

    assert accuracy() == 1.0
    for number in range(0, 10, 2):
        one, two = photos / f"crow/crow_{number}.png", photos / f"owl/owl_{number}.png"
        content = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(content)  # of the same length
    assert accuracy() < 1.0


@pytest.mark.long
def test_shards_are_of_these_photos(photos, run, tmp_path, refused):
    shards = tmp_path / "shards"
    options = [str(run), str(photos), f"--shards={shards}", "--shard_size=4"]
    assert main(["predict", *options]) == 0 and main(["predict", *options]) == 0
    # The first, the last and the number of photos stay what they were.
    (photos / "finch" / "finch_3.png").rename(photos / "finch" / "finch_33.png")
    assert "another images" in refused("predict", *options)
    dataset = [str(run), f"--dataset=folder:{photos}", "--split=train", f"--shards={shards}_2"]
    assert main(["predict", *dataset]) == 0
    (photos / "owl" / "owl_5.png").write_bytes(b"another photo")
    assert main(["predict", *dataset]) == 2


@pytest.mark.long
def test_a_run_is_scored_on_held_out_images(photos, run, tmp_path, monkeypatch, capsys, printed):
    assert main(["evaluate", str(run), f"--output={tmp_path / 'out'}"]) == 0
    ((name, own),) = json.loads((tmp_path / "out" / "metrics.json").read_text()).items()
    assert (name, own["split"]) == (f"folder:{photos}", "train[80%:]")
    rows = printed("predict", run, "--csv").splitlines()
    files = {row.split(",")[0] for row in rows if ".png" in row}
    split = open_dataset(f"folder:{photos}").split
    assert files == {str(photos / photo.path) for photo in split("train[80%:]").photos}

    def page(*folder):
        assert main(["predict", str(run), *folder, f"--output={tmp_path}/page.html"]) == 0
        return (tmp_path / "page.html").read_text()

    monkeypatch.chdir(photos)
    marked = re.findall(r"<figcaption>(\S+) <b class=\"mark\">trained on<", page("."))
    assert sorted(marked) == sorted(photo.path for photo in split("train[:80%]").photos)
    assert "trained on" not in page()
    paint(photos, "crow", 40, 0)
    assert "trained on" not in page(".") and "may have changed sides" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_says_all_of_itself_without_its_folder(photos, run, tmp_path, refused, printed):
    photo = shutil.copy(photos / "crow" / "crow_0.png", tmp_path)
    preprocess = json.loads((run / "config.json").read_text())["eval_preprocess"]
    first = (run / "report.html").read_text()
    shutil.rmtree(photos)
    for source in (run, run / "best.keras"):
        said = load_model(source).interface
        assert (said.class_names, said.preprocessing) == ([*CHANNELS], preprocess)
        (found,) = json.loads(printed("predict", source, photo, "--json"))
        assert {each["class"] for each in found["classes"]} == CHANNELS.keys()

    module = run / "module"
    exported = printed("export", "hub", run, f"--output={module}")
    assert "not verified: Expected a folder of images" in exported
    assert interface.labels_of(module) == [*CHANNELS]

    (run / "page.html").write_text("<p>Names &amp; birds")
    assert main(["report", str(run)]) == 0
    again = (run / "report.html").read_text()
    assert 'href="page.html">page.html</a>' in again
    assert 'href="module/"' in again and 'href="module/"' not in first
    # The rest is as it was, images included.
    part = re.compile('id="classes".*id="files"', re.DOTALL)
    assert part.search(first)[0] == part.search(again)[0]
    evaluation = run / "evaluation.npz"
    evaluation.write_bytes(evaluation.read_bytes()[:100])
    for message in ("evaluation.npz is damaged: ", "does not exist"):
        assert message in refused("report", run)
        evaluation.unlink(missing_ok=True)
