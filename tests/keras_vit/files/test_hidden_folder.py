import errno
import os
import tempfile
import threading
from unittest import mock

import pytest

from keras_vit.files import hidden_folder as module
from keras_vit.files.hidden_folder import REPLACED, hidden_folder, remove_unfinished


@pytest.mark.parametrize("name", ["model.npz", "a [1]\n*?\\ é", ".hidden"])
def test_the_next_one_removes_what_a_killed_process_left(tmp_path, name):
    # The kernel has unlocked them when the process ended.
    left, other = tmp_path / f".{name}.abcdefgh.unfinished", tmp_path / ".other.abcdefgh.unfinished"
    for folder in (left, other):
        folder.mkdir()
        (folder / "half").write_text("half")
    with hidden_folder(tmp_path / name) as folder:
        assert folder.parent == tmp_path and folder.name.startswith(".")
        assert not left.exists()
        (folder / "half").write_text("half")  # Its own lock keeps it from others.
        with hidden_folder(tmp_path / name):
            remove_unfinished(tmp_path)
        assert [path.name for path in folder.iterdir()] == ["half"]
        assert list(tmp_path.iterdir()) == [folder]
    assert not os.listdir(tmp_path)


def test_folders_around_it_are_made_and_a_refusal_names_them(tmp_path, monkeypatch):
    with hidden_folder(tmp_path / "new" / "deep" / "model.npz") as folder:
        assert folder.parent == tmp_path / "new" / "deep"
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "m.npz", tmp_path / "file" / "deep" / "m.npz"):
        expected = rf"^{tmp_path}/file is a file\. Name a directory"
        with pytest.raises(NotADirectoryError, match=expected):
            hidden_folder(path).__enter__()
    refused = OSError(errno.EROFS, "Read-only file system", "elsewhere")
    monkeypatch.setattr(tempfile, "mkdtemp", mock.Mock(side_effect=refused))
    message = rf"^{tmp_path} cannot be written: Read-only file system\. Name another folder, or all"
    with pytest.raises(PermissionError, match=message):
        hidden_folder(tmp_path / "m.npz").__enter__()


def test_one_that_another_process_removed_is_made_again(tmp_path, monkeypatch):
    lost = iter([str(tmp_path / "lost"), str(tmp_path / "kept")])
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *arguments: next(lost))
    with hidden_folder(tmp_path / "model.npz") as folder:
        assert folder.name == "kept" and folder.is_dir()
    assert not os.listdir(tmp_path)


def test_a_new_one_waits_for_the_process_that_looks_at_it(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "new").mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *arguments: str(tmp_path / "new"))
    file, done = os.open(tmp_path / "new", os.O_RDONLY), []
    fcntl.flock(file, fcntl.LOCK_EX)
    threading.Timer(0.3, lambda: (done.append(True), os.close(file))).start()
    with hidden_folder(tmp_path / "model.npz"):
        assert done


def test_what_was_moved_aside_gets_its_name_back_unless_that_is_taken(tmp_path):
    for suffix, content in (("abcdefgh", ["saved_model.pb"]), ("ijklmnop", [])):
        replaced = tmp_path / f".module.{suffix}.unfinished" / REPLACED
        replaced.mkdir(parents=True)
        for file in content:
            (replaced / file).touch()
        remove_unfinished(tmp_path, "module")
        assert os.listdir(tmp_path) == ["module"]
        assert os.listdir(tmp_path / "module") == ["saved_model.pb"]


def test_names_that_are_others_own_stay_and_all_stays_without_locks(tmp_path, monkeypatch):
    names = {".model.npz", "a.abcdefgh.unfinished", ".model.abc.unfinished", ".unfinished"}
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / ".notes.abcdefgh.unfinished").write_text("a file is none of ours")
    names.add(".notes.abcdefgh.unfinished")
    remove_unfinished(tmp_path)
    assert set(os.listdir(tmp_path)) == names
    remove_unfinished(tmp_path / "missing")
    monkeypatch.setattr(module, "fcntl", None)
    (tmp_path / ".model.npz.abcdefgh.unfinished").mkdir()
    with hidden_folder(tmp_path / "model.npz"):
        pass
    assert set(os.listdir(tmp_path)) == {*names, ".model.npz.abcdefgh.unfinished"}
