import contextlib
import logging
import pathlib
import re
import shutil
import tempfile
from unittest import mock

import pytest
import tensorflow as tf
from etils import epath

from keras_vit.training.errors import TrainingError, UsageError
from keras_vit.training.io import image_listing, remote_stores
from keras_vit.training.io.atomic import write_text
from keras_vit.training.io.paths import size_and_time

NO_BUCKET = tf.errors.NotFoundError(None, None, "code 404 with body '{\n No bucket")


@pytest.fixture
def address(ram):
    return epath.Path(ram()) / "run"


@pytest.fixture
def copy(address):
    with contextlib.closing(remote_stores.FolderCopy(address)) as made:
        yield made


def contents(address):
    return {name: (address / name).read_text() for name in remote_stores.files_below(address)}


def write(copy, **texts):
    for name, text in texts.items():
        write_text(copy.path / name.replace("__", "/"), text)


def test_folders_and_files_come_back_as_they_were_sent(copy, address):
    write(copy, a="1", checkpoints__checkpoint="2", checkpoints__b="3", **{".lock": "not sent"})
    copy.upload()
    assert contents(address) == {"a": "1", "checkpoints/b": "3", "checkpoints/checkpoint": "2"}
    assert not (address / ".lock").exists()
    (copy.path / "a").unlink()
    write(copy, checkpoints__b="changed")
    copy.upload()
    with remote_stores.copied(address) as again:
        found = {path.name: path.read_text() for path in again.rglob("*") if path.is_file()}
    assert found == {"b": "changed", "checkpoint": "2"}
    with remote_stores.copied(address, "change", skip=("checkpoints/",)) as again:
        assert list(again.iterdir()) == []
        (again / "c").write_text("4")
    assert contents(address).keys() == {"c", "checkpoints/b", "checkpoints/checkpoint"}
    remote_stores.remove(address / "checkpoints")
    for _ in range(2):
        remote_stores.remove(address / "c")
    assert contents(address) == {}

    # Files and folders, each on its own.
    with remote_stores.copied(address / "page.html", "write") as file:
        file.write_text("page")
    with remote_stores.copied(address / "module", "write") as folder:
        folder.mkdir()
        (folder / "saved_model.pb").write_text("graph")
    assert contents(address) == {"page.html": "page", "module/saved_model.pb": "graph"}
    with remote_stores.copied(address / "module") as folder:
        assert (folder / "saved_model.pb").read_text() == "graph"
    with remote_stores.copied(address / "page.html") as file:
        assert file.read_text() == "page"
    assert not file.exists() and not folder.exists()
    with pytest.raises(UsageError, match=r"none\.html cannot be read"):
        remote_stores.copied(address / "none.html").__enter__()


def test_what_names_others_is_sent_last_and_nothing_twice(copy, failing_store):
    write(copy, data="1", zeros="0", step__files="x")
    write(copy, **{"manifest.json": "digests", "step__manifest.json": "digests"})
    copy.upload()
    assert sorted(failing_store.names[:3]) == ["data", "files", "zeros"]
    assert failing_store.names[3:] == ["manifest.json"] * 2
    copy.upload()
    assert len(failing_store.names) == 5


@pytest.mark.parametrize("silent", [False, True])
def test_every_third_call_fails_and_all_arrives(silent, copy, address, failing_store, caplog):
    failing_store.fails, failing_store.silent = (lambda number: number % 3 == 0), silent
    write(copy, **{f"file{number}": str(number) * 100 for number in range(10)})
    with caplog.at_level(logging.WARNING, "keras_vit"):
        copy.upload()
    assert contents(address) == {f"file{number}": str(number) * 100 for number in range(10)}
    reason = "it has 50 bytes of 100" if silent else "Connection reset by peer"
    assert f"cannot be written: {reason}. Trying again" in caplog.text


def test_a_state_that_goes_while_a_copy_is_sent(copy, address, monkeypatch):
    write(copy, **{"checkpoint-1__data": "1", "checkpoint-2__data": "2"})

    def remove_the_other(file):
        (other,) = {"checkpoint-1", "checkpoint-2"} - {pathlib.Path(file.path).parent.name}
        shutil.rmtree(copy.path / other)
        return size_and_time(file)

    monkeypatch.setattr(image_listing, "size_and_time", remove_the_other)
    copy.upload()
    assert len(contents(address)) == 1


def test_a_dead_store_leaves_the_state_before_and_the_copy_here(copy, address, failing_store):
    write(copy, data1="whole", checkpoint="data1")
    copy.upload()
    failing_store.fails = lambda number: True
    (copy.path / "data1").unlink()
    write(copy, data2="newer", checkpoint="data2")
    with pytest.raises(TrainingError) as caught:
        copy.upload()
    message = rf"{address}/data2 cannot be written in 5 attempts: Connection reset.* Run the same "
    message += r"command again when the store answers\. This machine's copy is kept in (.*)\."
    kept = pathlib.Path(re.fullmatch(message, str(caught.value))[1])
    copy.close()
    with contextlib.closing(remote_stores.FolderCopy(address)):
        assert (kept / "run" / "data2").read_text() == "newer"
    found = contents(address)
    assert (found["checkpoint"], found["data1"]) == ("data1", "whole")
    shutil.rmtree(kept)


@pytest.mark.parametrize("error", [NO_BUCKET, PermissionError(13, "Permission denied")])
def test_a_store_that_refuses_is_asked_once(copy, address, failing_store, monkeypatch, error):
    refuse = mock.Mock(side_effect=error)
    write(copy, data="1")
    monkeypatch.setattr(failing_store, "open", refuse, raising=False)
    expected = rf"^{address}/data cannot be .* (No bucket|.*denied).* Check the name"
    with pytest.raises(UsageError, match=expected):
        copy.upload()
    assert refuse.call_count == 1
    expected = r"^s3://bucket/run cannot be read: .*s3:// with tensorflow-io\. Install it, or mount"
    with pytest.raises(UsageError, match=expected):
        remote_stores.files_below(epath.Path("s3://bucket/run"))


def test_the_next_copy_removes_a_killed_process_s(tmp_path, monkeypatch, address):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / ".keras_vit.abcdefgh.unfinished" / "run").mkdir(parents=True)
    with contextlib.closing(remote_stores.FolderCopy(address)) as own:
        assert list(tmp_path.iterdir()) == [own.path.parent]
        with contextlib.closing(remote_stores.FolderCopy(address)) as other:
            assert {*tmp_path.iterdir()} == {own.path.parent, other.path.parent}
    assert not list(tmp_path.iterdir())
