import os
import shutil

import pytest

from training.io.atomic import atomic_directory, atomic_file, write_text


def test_a_file_appears_at_the_end(tmp_path):
    file = tmp_path / "new/folder/file.bin"
    with atomic_file(file) as temporary:
        temporary.write_bytes(b"content")
        assert temporary.parent.parent == file.parent and not file.exists()
    assert file.read_bytes() == b"content"
    assert os.listdir(file.parent) == ["file.bin"]
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_file_leaves_the_old_one(tmp_path, error):
    file = tmp_path / "file.bin"
    file.write_bytes(b"old")
    with pytest.raises(error), atomic_file(file) as temporary:
        temporary.write_bytes(b"ha")
        raise error
    assert file.read_bytes() == b"old" and os.listdir(tmp_path) == ["file.bin"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_directory_leaves_the_old_one(tmp_path, error):
    directory = tmp_path / "module"
    directory.mkdir()
    (directory / "marker").write_text("old")
    with pytest.raises(error), atomic_directory(directory, "marker") as temporary:
        (temporary / "marker").write_text("new")
        raise error
    assert (directory / "marker").read_text() == "old" and os.listdir(tmp_path) == ["module"]


def test_a_directory_replaces_an_empty_or_marked_one_whole(tmp_path):
    directory = tmp_path / "module"
    directory.mkdir()
    with atomic_directory(directory, "marker") as temporary:
        (temporary / "marker").write_text("1")
        (temporary / "extra").write_text("1")
    with atomic_directory(directory, "marker") as temporary:
        (temporary / "marker").write_text("2")
    assert os.listdir(directory) == ["marker"] and (directory / "marker").read_text() == "2"
    assert os.listdir(tmp_path) == ["module"]


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError), atomic_file(tmp_path / "file/model.tflite"):
        pass
    with pytest.raises(OSError), atomic_directory(tmp_path / "file/module", "marker"):
        pass
    with pytest.raises(IsADirectoryError, match="name of a file"), atomic_file(tmp_path):
        pass
    with pytest.raises(OSError) as error, atomic_file(tmp_path / "gone" / "m.tflite") as temporary:
        shutil.rmtree(tmp_path / "gone")
        temporary.write_text("")
    assert error.value.filename == str(tmp_path / "gone" / "m.tflite")
    assert os.listdir(tmp_path) == ["file"]


def test_text_is_utf_8_and_the_temporary_file_is_hidden_and_has_the_name(tmp_path):
    write_text(tmp_path / "new/a.csv", "größe\n")
    assert (tmp_path / "new/a.csv").read_bytes() == "größe\n".encode()
    with atomic_file(tmp_path / "a.csv") as temporary:
        temporary.touch()
        assert temporary.name == "a.csv" and temporary.parent.name.startswith(".")


def test_a_directory_comes_back_if_the_process_is_stopped_between_the_renames(
    tmp_path, monkeypatch
):
    directory = tmp_path / "module"
    directory.mkdir()
    (directory / "marker").write_text("old")
    replace = os.replace

    def stopped(source, target):
        replace(source, target)
        monkeypatch.setattr(os, "replace", replace)
        raise SystemExit

    with pytest.raises(SystemExit), atomic_directory(directory, "marker") as temporary:
        (temporary / "marker").write_text("new")
        monkeypatch.setattr(os, "replace", stopped)
    assert (directory / "marker").read_text() == "old" and os.listdir(tmp_path) == ["module"]
