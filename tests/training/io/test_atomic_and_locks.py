import concurrent.futures
import contextlib
import errno
import os
import pathlib
import shutil

import pytest
from etils import epath

from keras_vit.training.errors import UsageError
from keras_vit.training.io import locks
from keras_vit.training.io.atomic import atomic_directory, atomic_file, write_text
from keras_vit.training.io.locks import lock


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
        patch.setattr(os, "replace", stopped)  # Between the two renames.
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


_HOLD = """
import sys, time
from keras_vit.training.io.locks import lock
with lock(sys.argv[1]):
    print("acquired", flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("place", ["disk", "store"])
def test_the_second_is_refused_and_the_next_is_not(place, tmp_path, ram, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.05)
    monkeypatch.setattr(locks, "PATIENCE", 3.0)
    folder = (tmp_path if place == "disk" else epath.Path(ram())) / "run"
    with lock(folder):
        with pytest.raises(UsageError, match=rf"in use by process {os.getpid()} on .*Wait until"):
            lock(folder).__enter__()
        assert (folder / ".lock").exists()
    assert not (folder / ".lock").exists()
    # Nor does the lock of one that was killed, which nobody writes any more.
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".lock").write_text("process 1 elsewh")
    with lock(folder):
        assert f"process {os.getpid()} " in (folder / ".lock").read_text()


def test_a_process_keeps_others_out_until_it_is_killed(launch, as_command, tmp_path):
    process = launch(as_command(_HOLD), tmp_path)
    assert process.stdout.readline() == "acquired\n"
    with pytest.raises(UsageError, match=f"in use by process {process.pid} on "):
        lock(tmp_path).__enter__()
    process.kill()
    process.wait()
    assert f"process {process.pid} " in (tmp_path / ".lock").read_text()
    with lock(tmp_path):
        assert f"process {os.getpid()} " in (tmp_path / ".lock").read_text()
    assert list(tmp_path.iterdir()) == []


def test_leaves_nothing_behind_but_what_was_written(tmp_path):
    with lock(tmp_path / "new" / "deep"), lock(tmp_path / "kept"):
        (tmp_path / "kept" / "file").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]
    for name in ("kept/file", "kept/file/run"):
        with pytest.raises(NotADirectoryError, match=r"kept/file is a file\. Name a directory"):
            lock(tmp_path / name).__enter__()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("link", "link/run"):
        with pytest.raises(NotADirectoryError, match=r"link is a broken link\. Name a directory"):
            lock(tmp_path / name).__enter__()
    (tmp_path / "link").unlink()
    with lock(tmp_path / "run"):  # A renamed folder is left alone, and so is the next of its name.
        (tmp_path / "run").rename(tmp_path / "moved")
    assert not (tmp_path / "run").exists()
    with lock(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "again")
        other = lock(tmp_path / "run")
        other.__enter__()
    assert (tmp_path / "run" / ".lock").exists()
    other.__exit__(None, None, None)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("function", ["pathlib.Path.mkdir", "tempfile.mkdtemp", "os.replace"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, function, code):
    def refuse(*arguments, **options):
        raise OSError(code, os.strerror(code), "some file")

    message = rf"^{tmp_path}\S* cannot be written: {os.strerror(code)}\. Name another fol"
    for write in (write_text, write_directory, lambda path, _: lock(path).__enter__()):
        (tmp_path / "file").write_text("")
        with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
            patch.setattr(function, refuse)
            if write in (write_text, write_directory) or function == "pathlib.Path.mkdir":
                stack.enter_context(pytest.raises(PermissionError, match=message))
            write(tmp_path / "new" / "folder", "text")
    for write in (write_text, write_directory):
        with pytest.raises(NotADirectoryError, match=r"file is a file\. Name a directory"):
            write(tmp_path / "file" / "deep" / "name", "text")


def test_without_locks(tmp_path, monkeypatch, caplog):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)
    with lock(tmp_path):
        pass
    assert "without locks (Function not implemented)" in caplog.text
    monkeypatch.setattr(locks, "fcntl", None)  # as on Windows
    with lock(tmp_path), lock(tmp_path / "other"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_go_while_it_is_made(tmp_path, monkeypatch):
    mkdir, fails = pathlib.Path.mkdir, [FileExistsError, FileNotFoundError]

    def removed_by_another(folder, *arguments, **options):
        if fails:
            raise fails.pop()
        mkdir(folder, *arguments, **options)

    monkeypatch.setattr("pathlib.Path.mkdir", removed_by_another)
    with lock(tmp_path / "run"):
        assert fails == []
    assert list(tmp_path.iterdir()) == []


def test_threads_are_never_together(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(200):
            with contextlib.suppress(UsageError), lock(tmp_path / "run"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    assert max(most) == 1
