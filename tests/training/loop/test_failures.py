"""Every failure ends in one clear message, and nothing valid is lost."""

import shutil

import numpy as np
import pytest
from PIL import Image

from training.commands.train import main
from training.errors import Diverged, TrainingError, UsageError
from training.loop import trainer


def test_full_disk_ends_the_command(no_room, train_command, tmp_path, capsys):
    no_room()
    _, _, *arguments = train_command(tmp_path / "run")
    assert main(arguments) == 1
    assert "error: The checkpoint of step 10 cannot be written" in capsys.readouterr().err


def test_diverging_run_names_the_step_and_the_last_good_checkpoint(tiny, tmp_path):
    config = tiny(total_steps=40)
    config.optimizer.clip_norm = 0.0
    config.optimizer.name = "sgd"
    config.optimizer.base_lr = 1e6
    config.optimizer.warmup_steps = 12
    config.loss_limit = 1e3
    config.checkpoint_every_steps = 1
    with pytest.raises(Diverged, match=r"in step \d+\. The last good checkpoint is that of step"):
        trainer.train(config, tmp_path)
    assert not (tmp_path / "model.keras").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--config.batch_siz=8"], "Unknown config key batch_siz. Did you mean batch_size?"),
        (["--config.batch_size=abc"], "expected a int such as 16. Received: abc"),
        (["--config.eval_every_steps=-1"], "config.eval_every_steps: expected at least 0"),
        (["--config.keep_checkpoints=0"], "Set --config.keep_checkpoints=1 or more"),
        (["--config.model.patch_size=0"], "patch_size"),
        (["--config.model.hidden_size=17"], "hidden_size"),
        (["--config.dataset=nothing"], "Unknown data set 'nothing'"),
        (["--config.dataset=cifar10"], "python -m training data prepare cifar10"),
        (["--config.train_preprocess=decode|shrink"], "Unknown operation 'shrink'"),
        (["--config.checkpoint=missing.npz"], "missing.npz"),
        (["--config.strategy=cluster"], "one, mirrored, multiworker, tpu"),
        (["--config.strategy=multiworker"], "TF_CONFIG: it is not set"),
        (["--config.strategy=tpu"], "TPU 'local' cannot be reached"),
        (["--config.batch_size=6", "--config.accumulation_steps=4"], "accumulation_steps"),
        (["--config.optimizer.name=lion"], "sgd, adamw"),
        (["--config.optimizer.warmup_steps=500"], "fewer than the 200 updates of the schedule"),
        (["--config.profile=early"], "FIRST:LAST"),
        (["--verbose"], "unrecognized arguments: --verbose"),
    ],
)
def test_wrong_command_leaves_nothing_behind(
    options, message, train_command, tmp_path, capsys, monkeypatch
):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    workdir = tmp_path / "run"
    _, _, *arguments = train_command(workdir, *options)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("error: ") == 1 and "Traceback" not in error
    assert not workdir.exists()


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "No such file"),
        ("def get_config(:", "SyntaxError"),
        ("x = 1", "defines no function get_config"),
        ("def get_config():\n    return {}", "expected an ml_collections.ConfigDict"),
        ("def get_config(arg):\n    return arg", "missing 1 required positional argument"),
    ],
)
def test_unreadable_config(content, message, tmp_path, capsys):
    file = tmp_path / "config.py"
    if content is not None:
        file.write_text(content)
    assert main([f"--config={file}", f"--workdir={tmp_path / 'run'}"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_directory_of_another_config(tiny, tmp_path):
    trainer.train(tiny(total_steps=8, eval_split=""), tmp_path)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="batch_size: 16 -> 8"):
        trainer.train(tiny(total_steps=8, eval_split="", batch_size=8), tmp_path)
    assert sorted(tmp_path.rglob("*")) == files


@pytest.fixture
def broken_data(data_dir, tmp_path):
    """A copy of the digits in which every tenth training image cannot be decoded."""
    broken = tmp_path / "data"
    shutil.copytree(data_dir, broken)
    (file,) = broken.rglob("*-train.tfrecord*")
    parts = file.read_bytes().split(b"IDAT")
    markers = [b"XDAT" if index % 10 == 9 else b"IDAT" for index in range(len(parts) - 1)]
    pairs = zip(parts, [*markers, b""], strict=True)
    file.write_bytes(b"".join(part + marker for part, marker in pairs))
    return str(broken)


def test_unreadable_image_names_the_step(tiny, broken_data, tmp_path):
    expected = (
        r"after step \d+: .*record.* What cannot be decoded: sklearn_digits-train\S+__\d+"
        r".* config\.on_error=skip\. There is no earlier"
    )
    with pytest.raises(TrainingError, match=expected):
        trainer.train(tiny(data_dir=broken_data), tmp_path / "run")


@pytest.mark.long
def test_unreadable_images_can_be_skipped(tiny, broken_data, tmp_path, caplog):
    config = tiny(data_dir=broken_data, on_error="skip", total_steps=20)
    metrics = trainer.train(config, tmp_path / "run")
    assert np.isfinite(metrics["loss"])
    assert "unreadable images are skipped, such as" in caplog.text


@pytest.mark.long
def test_a_damaged_photo_is_named_and_where_all_are_it_is_said(tiny, tmp_path):
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.png").write_text("no image")
    photos = {"dataset": f"folder:{tmp_path / 'photos'}", "eval_split": ""}
    with pytest.raises(TrainingError, match=r"16 images in a row cannot be read: .*data check fol"):
        trainer.train(tiny(**photos, on_error="skip"), tmp_path / "run")
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "b" / "1.png")
    with pytest.raises(TrainingError, match=r"cannot be decoded: a/1\.png\. .*on_error=skip"):
        trainer.train(tiny(**photos), tmp_path / "other")
