"""A path is of this machine or of a store, or refused before anything is written."""

import pathlib

import pytest
from etils import epath

from keras_vit.export.commands import npz
from keras_vit.training.command_options import CommandParser
from keras_vit.training.commands import ablation, sweep, train, vtab
from keras_vit.training.config import schema
from keras_vit.training.errors import UsageError
from keras_vit.training.io.paths import (
    any_path,
    cache_folder,
    is_remote,
    local_path,
    read_lines,
)

UNKNOWN = ["memory://run", "http://host/run", "file://host/run"]
QUICKSTART = "--config=training/configs/quickstart.py"
LOCAL = {
    "runs/a": "runs/a",
    "~/x": "{home}/x",
    "file:///data/a%20b": "/data/a b",
    "file://localhost/data": "/data",
    "C:/runs": "C:/runs",
    "a:b": "a:b",
    "gs:": "gs:",
    pathlib.Path("runs"): "runs",
}


@pytest.mark.parametrize("name", LOCAL)
def test_local_paths(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not is_remote(name)
    for read in (local_path, any_path):
        assert read(name) == pathlib.Path(LOCAL[name].format(home=tmp_path))


@pytest.mark.parametrize(
    "name",
    ["", *UNKNOWN, "gs://b/run", "s3://b/run", pathlib.Path("gs://b/run"), "~nobody-of-this/x"],
)
def test_other_paths_are_refused(name, tmp_path):
    with pytest.raises(UsageError, match="Expected a path"):
        local_path(name)
    with pytest.raises(UsageError, match=r"Expected a path in UTF-8\. Received: '.*udcff'"):
        local_path(tmp_path / "\udcff")


def test_paths_of_stores():
    assert is_remote("gs://bucket/run") and isinstance(any_path("gs://bucket/run"), epath.Path)
    assert str(any_path("s3://b/run") / "x") == "s3://b/run/x"
    for unknown in UNKNOWN[:2]:
        with pytest.raises(UsageError, match=f"of gs://, s3:// or .* Received: {unknown}"):
            any_path(unknown)


@pytest.mark.parametrize(
    "command, arguments",
    [(train, [QUICKSTART]), (sweep, [QUICKSTART]), (vtab, ["runs/none"]), (ablation, ["head"])],
)
def test_commands_refuse_before_any_work(command, arguments, capsys):
    before = set(pathlib.Path.cwd().iterdir())
    assert command.main([*arguments, "--workdir=memory://run"]) == 2
    assert "file system. Received: memory://run" in capsys.readouterr().err
    assert set(pathlib.Path.cwd().iterdir()) == before


def test_options_and_data_sets_may_lie_in_stores_that_are_known(capsys):
    parser = CommandParser("training")
    parser.add_path("--output", "folder")
    with pytest.raises(UsageError, match="memory://b"):
        parser.parse_args(["--output=memory://b/x"])
    assert npz.main(["run", "--output=memory://b/x"]) == 2
    assert "memory://b" in capsys.readouterr().err
    assert str(parser.parse_args(["--output=gs://b/x"]).output) == "gs://b/x"
    assert parser.parse_args(["--output=~/x"]).output == pathlib.Path.home() / "x"

    config = {"dataset": "digits", "batch_size": 8, "total_steps": 1}
    assert schema.complete(config | {"data_dir": "gs://b/tfds"}).data_dir == "gs://b/tfds"
    for remote in UNKNOWN[:2]:
        with pytest.raises(UsageError, match=remote):
            schema.complete(config | {"data_dir": remote})


def test_lines_of_text(tmp_path, ram):
    for folder in (tmp_path, epath.Path(ram())):
        (folder / "names.txt").write_bytes(" crow\r\n\n  große Meise \n".encode())
        assert read_lines(folder / "names.txt") == ["crow", "große Meise"]
        (folder / "names.txt").write_bytes("Häher".encode("latin-1"))
        with pytest.raises(ValueError, match=r"a text in UTF-8\. Received: .*names\.txt \("):
            read_lines(folder / "names.txt")
    with pytest.raises(UsageError, match=r"/none\.txt cannot be read: .*Check the name"):
        read_lines(folder / "none.txt")


def test_caches_share_a_folder(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder("features") == pathlib.Path("/cache/keras-vit/features")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("x") == pathlib.Path.home() / ".cache" / "keras-vit" / "x"
