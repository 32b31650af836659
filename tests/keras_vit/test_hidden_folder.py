"""What a killed process leaves is removed, and what a living one writes is not."""

import ast
import os
import signal
import subprocess
import sys
import tempfile

import pytest

from keras_vit import hidden_folder as module
from keras_vit.hidden_folder import REPLACED, hidden_folder, remove_unfinished

# By its file, since importing Keras takes long.
HOLD = """
import runpy, sys, time
with runpy.run_path(sys.argv[1])["hidden_folder"](sys.argv[2]) as folder:
    (folder / "half").write_text("half")
    print(ascii(str(folder)), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder():
    """Returns a function that starts a process which writes beside a path."""
    processes = []

    def start(path):
        command = [sys.executable, "-c", HOLD, module.__file__, str(path)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return processes[-1], ast.literal_eval(processes[-1].stdout.readline())

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def left_of_a_killed_process(holder, path):
    process, left = holder(path)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert os.path.exists(left)
    return left


@pytest.mark.parametrize("name", ["model.npz", "a [1]\n*?\\ é", ".hidden"])
def test_the_next_one_removes_what_a_killed_process_left(holder, tmp_path, name):
    path = tmp_path / name
    left = left_of_a_killed_process(holder, path)
    other = left_of_a_killed_process(holder, tmp_path / f"other {name}")
    with hidden_folder(path) as folder:
        assert folder.parent == tmp_path and folder.name.startswith(".")
        assert not os.path.exists(left)
    assert [str(each) for each in tmp_path.iterdir()] == [other]
    remove_unfinished(tmp_path)
    assert not os.listdir(tmp_path)


def test_a_living_process_keeps_its_own(holder, tmp_path):
    process, folder = holder(tmp_path / "model.npz")
    with hidden_folder(tmp_path / "model.npz") as own:
        # Nor does a process take that of another thread.
        with hidden_folder(tmp_path / "model.npz"):
            assert own.exists()
        assert os.listdir(folder) == ["half"]
    assert process.poll() is None
    assert [str(each) for each in tmp_path.iterdir()] == [folder]


def test_one_that_another_process_removed_is_made_again(tmp_path, monkeypatch):
    make = tempfile.mkdtemp

    def make_and_lose(*arguments):
        monkeypatch.setattr(tempfile, "mkdtemp", make)
        folder = make(*arguments)
        os.rmdir(folder)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    with hidden_folder(tmp_path / "model.npz") as folder:
        assert folder.is_dir()
    assert tempfile.mkdtemp is make and not os.listdir(tmp_path)


def test_what_was_moved_aside_gets_its_name_back(tmp_path):
    path = tmp_path / "module"
    (tmp_path / ".module.abcdefgh.unfinished" / REPLACED).mkdir(parents=True)
    (tmp_path / ".module.abcdefgh.unfinished" / REPLACED / "saved_model.pb").touch()
    remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == ["module"] and os.listdir(path) == ["saved_model.pb"]

    (tmp_path / ".module.ijklmnop.unfinished" / REPLACED).mkdir(parents=True)
    remove_unfinished(tmp_path, "module")
    assert os.listdir(tmp_path) == ["module"] and os.listdir(path) == ["saved_model.pb"]


def test_names_that_are_others_own(tmp_path):
    names = {".model.npz", "a.abcdefgh.unfinished", ".model.abc.unfinished", ".unfinished"}
    for name in names:
        (tmp_path / name).mkdir()
    remove_unfinished(tmp_path)
    assert set(os.listdir(tmp_path)) == names
    remove_unfinished(tmp_path / "missing")


def test_without_locks_all_of_it_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "fcntl", None)
    (tmp_path / ".model.npz.abcdefgh.unfinished").mkdir()
    with hidden_folder(tmp_path / "model.npz"):
        pass
    assert os.listdir(tmp_path) == [".model.npz.abcdefgh.unfinished"]
