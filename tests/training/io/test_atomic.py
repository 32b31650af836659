import os
import shutil

import pytest

from keras_vit.training.io.atomic import atomic_directory, atomic_file, write_text


def write_directory(directory, text):
    with atomic_directory(directory, "marker") as temporary:
        (temporary / "marker").write_text(text)


def test_a_file_appears_at_the_end(tmp_path):
    file = tmp_path / "new/folder/file.bin"
    with atomic_file(file) as temporary:
        temporary.write_bytes(b"content")
        assert temporary.parent.parent == file.parent and not file.exists()
        assert temporary.name == file.name and temporary.parent.name.startswith(".")
    assert file.read_bytes() == b"content"
    write_text(file, "größe\n")
    assert file.read_bytes() == "größe\n".encode() and os.listdir(file.parent) == ["file.bin"]
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("error", [OSError, SystemExit])
def test_an_interrupted_write_leaves_the_old_one(tmp_path, error, monkeypatch):
    replace = os.replace

    def stopped(source, target):
        replace(source, target)
        os.replace = replace
        raise error

    (tmp_path / "file.bin").write_bytes(b"old")
    with pytest.raises(error), atomic_file(tmp_path / "file.bin") as temporary:
        temporary.write_bytes(b"ha")
        raise error
    write_directory(tmp_path / "module", "old")
    with pytest.raises(error), atomic_directory(tmp_path / "module", "marker") as temporary:
        (temporary / "marker").write_text("new")
        raise error
    with pytest.raises(error), monkeypatch.context() as patch:
        # Between the two renames.
        patch.setattr(os, "replace", stopped)
        write_directory(tmp_path / "module", "new")
    assert (tmp_path / "file.bin").read_bytes() == b"old"
    assert (tmp_path / "module" / "marker").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["file.bin", "module"]


def test_a_directory_replaces_an_empty_or_marked_one_whole_and_nothing_else(tmp_path):
    directory = tmp_path / "module"
    directory.mkdir()
    write_directory(directory, "1")
    (directory / "extra").write_text("1")
    write_directory(directory, "2")
    assert os.listdir(directory) == ["marker"] and (directory / "marker").read_text() == "2"
    assert os.listdir(tmp_path) == ["module"]
    with pytest.raises(FileExistsError, match="holds something else"):
        write_directory(tmp_path, "3")
    with pytest.raises(IsADirectoryError, match="name of a file"), atomic_file(tmp_path):
        pass
    with pytest.raises(OSError) as error, atomic_file(tmp_path / "gone" / "m.tflite") as temporary:
        shutil.rmtree(tmp_path / "gone")
        temporary.write_text("")
    assert error.value.filename == str(tmp_path / "gone" / "m.tflite")
    assert os.listdir(tmp_path) == ["module"]
