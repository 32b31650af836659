"""Files in a store that is slow to answer, fails, and keeps half of what it was given."""

import logging

import pytest
import tensorflow as tf
from etils import epath

from training.errors import TrainingError, UsageError
from training.io import folder_copy, remote_files
from training.io.atomic import write_text
from training.io.local_path import any_path, is_remote


@pytest.fixture
def address(ram):
    return epath.Path(ram()) / "run"


@pytest.fixture
def copy(address):
    made = folder_copy.FolderCopy(address)
    yield made
    made.close()


def contents(address):
    return {name: (address / name).read_text() for name in remote_files.files_below(address)}


def write(copy, **texts):
    for name, text in texts.items():
        write_text(copy.path / name.replace("__", "/"), text)


def test_paths_of_stores(ram):
    assert is_remote("gs://bucket/run")
    assert isinstance(any_path("gs://bucket/run"), epath.Path)
    assert str(any_path("s3://b/run") / "x") == "s3://b/run/x"
    for local in ("runs/a", "C:/runs", "file:///a", "a:b", "gs:"):
        assert not is_remote(local)
    for unknown in ("http://host/run", "memory://run"):
        with pytest.raises(UsageError, match=f"of gs://, s3:// or .* Received: {unknown}"):
            any_path(unknown)


def test_a_folder_comes_back_as_it_was_sent(copy, address):
    write(copy, a="1", checkpoints__checkpoint="2", checkpoints__b="3")
    write_text(copy.path / ".lock", "not sent")
    copy.publish()
    assert contents(address) == {"a": "1", "checkpoints/b": "3", "checkpoints/checkpoint": "2"}
    (copy.path / "a").unlink()
    write(copy, checkpoints__b="changed")
    copy.publish()
    again = folder_copy.FolderCopy(address)
    again.fetch()
    assert {path.name: path.read_text() for path in again.path.rglob("*") if path.is_file()} == {
        "b": "changed",
        "checkpoint": "2",
    }
    again.close()


def test_what_names_others_is_sent_last_and_nothing_twice(copy, failing_store):
    write(copy, checkpoint="list", data="1", zeros="0", step__files="x")
    (copy.path / "step" / "files").rename(copy.path / "step" / "files.json")
    copy.publish()
    assert sorted(failing_store.names[:2]) == ["data", "zeros"]
    assert sorted(failing_store.names[2:]) == ["checkpoint", "files.json"]
    copy.publish()
    assert len(failing_store.names) == 4


def test_every_third_call_fails_and_all_arrives(copy, address, failing_store, caplog):
    failing_store.fails = lambda number: number % 3 == 0
    write(copy, **{f"file{number}": str(number) * 100 for number in range(20)})
    with caplog.at_level(logging.WARNING, "training"):
        copy.publish()
    assert contents(address) == {f"file{number}": str(number) * 100 for number in range(20)}
    assert "cannot be written: [Errno 104] Connection reset by peer. Trying again" in caplog.text


def test_half_a_file_is_noticed(copy, address, failing_store):
    failing_store.fails, failing_store.silent = (lambda number: number < 3), True
    write(copy, data="0123456789")
    copy.publish()
    assert contents(address) == {"data": "0123456789"}
    assert failing_store.names == ["data"] * 3

    failing_store.fails = lambda number: True
    write(copy, data="9876543210")
    with pytest.raises(TrainingError, match="5 attempts: it has 5 bytes of 10"):
        copy.publish()


def test_a_dead_store_leaves_the_state_before_and_the_copy_here(copy, address, failing_store):
    write(copy, data1="whole", checkpoint="data1")
    copy.publish()
    failing_store.fails = lambda number: True
    (copy.path / "data1").unlink()
    write(copy, data2="newer", checkpoint="data2")
    with pytest.raises(TrainingError) as caught:
        copy.publish()
    message = str(caught.value)
    assert message.startswith(f"{address}/data2 cannot be written in 5 attempts: [Errno 104]")
    assert "Run the same command again when the store answers." in message
    assert "\n" not in message
    copy.close()
    assert f"copy is kept in {copy.path.parent}" in message
    assert (copy.path / "data2").read_text() == "newer"
    found = contents(address)
    assert found["checkpoint"] == "data1"
    assert found["data1"] == "whole"


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.PermissionDeniedError(None, None, "403 Forbidden"),
        tf.errors.NotFoundError(None, None, "404 The specified bucket does not exist"),
        PermissionError(13, "Permission denied"),
    ],
)
def test_a_store_that_refuses_is_asked_once(copy, address, failing_store, monkeypatch, error):
    asked = []

    def refuse(path, mode):
        asked.append(path)
        raise error

    write(copy, data="1")
    monkeypatch.setattr(failing_store, "open", refuse, raising=False)
    with pytest.raises(UsageError) as caught:
        copy.publish()
    message = str(caught.value)
    assert message.startswith(f"{address}/data cannot be written: ")
    assert "Check the name of the bucket, and that this machine may read and write it" in message
    assert "\n" not in message
    assert len(asked) == 1


def test_what_a_server_answers_is_in_the_line():
    answer = 'Error executing an HTTP request: HTTP response code 404 with body \'{\n "error": {'
    error = tf.errors.NotFoundError(None, None, f'{answer}\n "The bucket does not exist."}}}}\'')

    def refuse():
        raise error

    with pytest.raises(UsageError, match=r"^x cannot be read: .*The bucket does not exist.*Check"):
        remote_files.attempt(refuse, "x cannot be read")


def test_a_file_system_that_is_not_installed_is_named():
    with pytest.raises(UsageError) as caught:
        remote_files.files_below(epath.Path("s3://bucket/run"))
    message = str(caught.value)
    assert message.startswith("s3://bucket/run cannot be read: ")
    assert "s3:// with tensorflow-io. Install it, or mount the bucket" in message


def test_files_and_folders_are_sent_and_fetched(ram):
    address = epath.Path(ram())
    with folder_copy.sent_to(address / "page.html") as file:
        file.write_text("page")
    with folder_copy.sent_to(address / "module") as folder:
        folder.mkdir()
        (folder / "saved_model.pb").write_text("graph")
    assert contents(address) == {"page.html": "page", "module/saved_model.pb": "graph"}
    with folder_copy.fetched(address / "module") as folder:
        assert (folder / "saved_model.pb").read_text() == "graph"
    with folder_copy.fetched(address / "page.html") as file:
        assert file.read_text() == "page"
    assert not file.exists()
    with (
        pytest.raises(UsageError, match=r"none\.html cannot be read"),
        folder_copy.fetched(address / "none.html"),
    ):
        pass
