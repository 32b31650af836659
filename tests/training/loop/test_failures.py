import time
from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit.__main__ import main
from keras_vit.training.config import schema
from keras_vit.training.errors import Diverged, TrainingError, UsageError
from keras_vit.training.loop import agreement_of_workers, trainer
from keras_vit.training.loop.run_directory import RunDirectory
from tests.training.data.helpers import write_photos
from tests.training.runs import wait_for

PLAIN = "decode|resize(16)|value_range"
MASKED = "few_shot.datasets=digits --config.masked.target=pixels --config.mixup_p=0"
MASKED += " --config.eval_split="
CONFIG = schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
TRAIN = {"examples": 10, "digest": "ab" * 16}
DATA = {"class_names": ["crow", "owl"], "train": TRAIN, "eval": None}


def test_full_disk_ends_the_command(no_room, train_command, tmp_path, capsys):
    no_room()
    assert main(["train", *train_command(tmp_path / "run")[2:]]) == 1
    assert "error: The checkpoint of step 10 cannot be written" in capsys.readouterr().err


@pytest.mark.long
def test_a_clock_far_ahead(tiny, tmp_path, monkeypatch):
    later = time.struct_time((2126, 3, 1, 0, 0, 0, 4, 60, 0))
    with monkeypatch.context() as patch, pytest.raises(TrainingError, match="of 1980 to 2107"):
        patch.setattr(time, "localtime", lambda *_: later)
        trainer.train(tiny(total_steps=10), tmp_path)
    assert not (tmp_path / "model.keras").exists()
    trainer.train(tiny(total_steps=10), tmp_path)
    assert (tmp_path / "model.keras").exists()


def test_diverging_run_names_the_step_and_the_last_good_checkpoint(tiny, tmp_path):
    config = tiny(total_steps=40, loss_limit=1e3, checkpoint_every_steps=1)
    config.optimizer.update(clip_norm=0.0, name="sgd", base_lr=1e6, warmup_steps=12)
    with pytest.raises(Diverged, match=r"in step \d+\. The last good checkpoint is that of step"):
        trainer.train(config, tmp_path)
    assert not (tmp_path / "model.keras").exists()


@pytest.mark.rows(
    ("batch_siz=8", "Did you mean batch_size? Unknown config key batch_siz."),
    ("model.hidden_size=17", "hidden_size"),
    ("dataset=cifar10", "keras-vit data prepare cifar10"),
    ("eval_preprocess=decode|resize(18)|value_range", "(16, 16, 3), as the model takes"),
    ("train_preprocess=decode|resize(16)", "config.train_preprocess to map pixels to [-1, 1]"),
    (f"train_preprocess={PLAIN}|one_hot(1)", "to end with (10,), a number for each class. Rec"),
    (f"train_preprocess={PLAIN}|one_hot(10)|one_hot(10)", "Expected one_hot of classes, ints."),
    (f"eval_preprocess={PLAIN}|one_hot(12)", "to end with (10,), a number for each class. Rec"),
    (f"eval_preprocess={PLAIN}|mixup(1)", "Expected no mixup in config.eval_preprocess"),
    ("model.classifier=unpooled", "pools. Received: 10, for an output of (None, 16, 10)"),
    ("masked.target=pixels --config.eval_split=", "expected no mixup, as a target is the color"),
    (f"{MASKED} --config.train_preprocess={PLAIN}|mixup(1)", "expected no mixup, as a target"),
    (f"{MASKED} --config.eval_preprocess=decode|resize(32)|value_range", "eval_preprocess to en"),
    (f"{MASKED} --config.model.classifier=unpooled", "features of (None, 16, 16)."),
    ("eval_split= --config.eval_preprocess=decode|resize(32)|value_range", "makes (32, 32, 3)"),
    ("eval_split= --config.eval_preprocess=decode|resize(16)", "maps them to [0, 255]."),
    (
        "eval_split= --config.eval_preprocess=decode|value_range",
        "preprocess to end with im",
    ),
    (
        "eval_split= --config.eval_preprocess=resize(16)|value_range",
        "to begin with decode",
    ),
    (
        "train_preprocess=decode|resize_small(20)|value_range",
        "(None, None, 3): add a resize",
    ),
    ("checkpoint=missing.npz", "missing.npz"),
    ("strategy=multiworker", "from TF_CONFIG: KeyError: 'TF_CONFIG'"),
    ("strategy=tpu", "TPU 'local' cannot be reached"),
    ("optimizer.warmup_steps=500", "fewer than the 200 updates of the schedule"),
    ("profile=200:300", "a first step below 200"),
)
def test_bad_options_leave_nothing(option, message, train_command, tmp_path, refused, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    options = f"--config.{option}".split(" ")
    assert message in (error := refused("train", *train_command(tmp_path / "run", *options)[2:]))
    assert error.count("error: ") == 1 and "Traceback" not in error
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_renamed_ends_the_run_and_stays_as_it_is(tiny, tmp_path, monkeypatch):
    workdir, log = tmp_path / "run", RunDirectory.log

    def rename(directory, step, values):
        log(directory, step, values)
        if step == 20:
            wait_for(workdir, 10)
            workdir.rename(tmp_path / "moved")

    monkeypatch.setattr(RunDirectory, "log", rename)
    changes = {"log_every_steps": 10, "checkpoint_every_steps": 10, "total_steps": 40}
    with pytest.raises(TrainingError, match=r"run to stay in its place\. .* resumes"):
        trainer.train(tiny(**changes), workdir)
    assert not workdir.exists()
    assert (tmp_path / "moved" / "checkpoints" / "checkpoint-10").exists()


@pytest.mark.long
def test_damaged_photos_are_named_or_skipped_and_where_all_are_it_is_said(tiny, tmp_path, caplog):
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.png").write_text("no image")
    photos = {"dataset": f"folder:{tmp_path / 'photos'}", "eval_split": "", "total_steps": 8}
    skipping = tiny(**photos, on_error="skip")
    with pytest.raises(TrainingError, match=r"16 images in a row cannot be read: .*data check fol"):
        trainer.train(skipping, tmp_path / "run")
    write_photos(tmp_path / "photos", ["b/1.png"])
    expected = r"after step \d+: .*cannot be decoded: a/1\.png\. .*on_error=skip\. There is no"
    with pytest.raises(TrainingError, match=expected):
        trainer.train(tiny(**photos), tmp_path / "other")
    skipping.data_changed = "accept"
    assert np.isfinite(trainer.train(skipping, tmp_path / "run")["loss"])
    assert "1 unreadable image is skipped, such as a/1.png" in caplog.text


def engine(change=str):
    return SimpleNamespace(is_chief=True, step=4, parts=2, gather=lambda text: [text, change(text)])


@pytest.mark.rows(
    ("alike", '"config.seed": 0', '"config.seed": 1', "seed is 0 in worker 0 and 1 in worker"),
    ("alike", '"config.seed": 0, ', "", "seed is 0 in worker 0 and None in worker 1"),
    ("alike", '-vit": "', '-vit": "1', "the version of keras-vit is '0"),
    ("alike", "/run", "/other", "--workdir is '/run'.* and '/other'"),
    ("data", ": 10", ": 9", "the examples of train is 10 in worker 0 and 9 in worker 1"),
    ("data", "abab", "cdab", "the digest of train is 'abab.* in worker 0 and 'cdab"),
    ("data", 'names": "', 'names": "0', "the digest of the class names is '.* and '0"),
    ("step", "4", "14", "newest is 4 in worker 0 and 14 in worker 1"),
)
def test_what_differs_is_named(check, mine, theirs, named):
    require = getattr(agreement_of_workers, f"check_{check}")
    own = {"alike": (CONFIG, "/run"), "data": (DATA,), "step": ()}[check]
    require(engine(), *own)
    with pytest.raises(UsageError, match=f"^Expected all workers .*{named}"):
        require(engine(lambda text: text.replace(mine, theirs, 1)), *own)


def test_directories_that_a_job_cannot_use_are_refused_by_all(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(UsageError, match=r"is a file\. Name a directory"):
        agreement_of_workers.acquire(engine(lambda _: ""), RunDirectory(tmp_path / "run", None))
    with pytest.raises(UsageError, match="Mount it, as with gcsfuse"):
        agreement_of_workers.check_shared(engine(), "gs://bucket/run")
    agreement_of_workers.check_shared(engine(), "/shared/run")
