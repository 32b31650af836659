"""A path is of this machine, or refused before anything is written."""

import pathlib

import pytest

from export.command_options import ExportParser
from training import config_keys
from training.command_options import CommandParser
from training.commands import ablation, sweep, train, vtab
from training.errors import UsageError
from training.io.local_path import local_path
from training.loop.run_directory import RunDirectory

UNKNOWN = ["memory://run", "http://host/run", "file://host/run"]
REMOTE = ["gs://bucket/run", "s3://b/run", *UNKNOWN]


@pytest.mark.parametrize(
    "name, path",
    [
        ("runs/a", "runs/a"),
        ("~/x", "{home}/x"),
        ("file:///data/a%20b", "/data/a b"),
        ("file://localhost/data", "/data"),
        ("C:/runs", "C:/runs"),
        ("a:b", "a:b"),
        (pathlib.Path("runs"), "runs"),
    ],
)
def test_local_paths(name, path, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path(name) == pathlib.Path(path.format(home=tmp_path))


@pytest.mark.parametrize(
    "name", ["", *REMOTE, pathlib.Path("gs://bucket/run"), "~nobody-of-this/x"]
)
def test_other_paths_are_refused(name):
    with pytest.raises(UsageError, match="Expected a path"):
        local_path(name)


@pytest.mark.parametrize(
    "command, arguments, remote",
    [
        *((train, ["--config=training/configs/quickstart.py"], each) for each in UNKNOWN),
        *((sweep, ["--config=training/configs/quickstart.py"], each) for each in UNKNOWN),
        *((vtab, ["runs/none"], each) for each in UNKNOWN),
        *((ablation, ["head"], each) for each in UNKNOWN),
    ],
)
def test_commands_refuse_before_any_work(command, arguments, remote, capsys):
    before = set(pathlib.Path.cwd().iterdir())
    assert command.main([*arguments, f"--workdir={remote}"]) == 2
    assert f"file system. Received: {remote}" in capsys.readouterr().err
    assert set(pathlib.Path.cwd().iterdir()) == before


def test_every_option_that_is_written_to_refuses_stores_it_does_not_know():
    export, training = ExportParser("export"), CommandParser("training")
    export.add_output("file")
    training.add_path("--output", "folder")
    for parser in (export, training):
        with pytest.raises(UsageError, match="memory://b"):
            parser.parse_args(["--output=memory://b/x"])
        assert str(parser.parse_args(["--output=gs://b/x"]).output) == "gs://b/x"
        assert parser.parse_args(["--output=~/x"]).output == pathlib.Path.home() / "x"
    with pytest.raises(UsageError, match="gs:/"):
        RunDirectory("gs://bucket/run", None)


def test_data_sets_may_lie_in_a_bucket():
    config = {"dataset": "digits", "batch_size": 8, "total_steps": 1}
    assert config_keys.complete(config | {"data_dir": "gs://b/tfds"}).data_dir == "gs://b/tfds"
    for remote in ("http://host/tfds", "memory://tfds"):
        with pytest.raises(UsageError, match=remote):
            config_keys.complete(config | {"data_dir": remote})


def test_names_that_are_not_utf_8_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"Expected a path in UTF-8\. Received: '.*udcff'"):
        local_path(tmp_path / "\udcff")
