"""A folder has one owner at a time, and none once that is gone."""

import errno
import os
import signal
import threading

import pytest

from training.errors import UsageError
from training.io.folder_lock import FolderLock

_HOLD = """
import sys, time
from training.io.folder_lock import FolderLock
with FolderLock(sys.argv[1]) as lock:
    lock.take()
    print("taken", flush=True)
    time.sleep(1000)
"""


def test_second_process_is_refused_until_the_first_is_killed(launch, tmp_path):
    folder = tmp_path / "run"
    process = launch("-c", _HOLD, folder)
    assert process.stdout.readline() == "taken\n"
    expected = rf"in use by process {process.pid} on .*Wait until"
    with pytest.raises(UsageError, match=expected), FolderLock(folder) as lock:
        lock.take()
    assert (folder / ".lock").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert f"process {process.pid} " in (folder / ".lock").read_text()
    with FolderLock(folder) as lock:
        lock.take()
        assert f"process {os.getpid()} " in (folder / ".lock").read_text()
    assert list(folder.iterdir()) == []


def test_leaves_nothing_behind_but_what_was_written(tmp_path):
    for name in ("new/deep", "kept"):
        with FolderLock(tmp_path / name) as lock:
            lock.take()
            if name == "kept":
                (tmp_path / name / "file").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_never_taken_touches_nothing(tmp_path):
    with FolderLock(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_file(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/run"):
        expected = r"is a file\. Name a directory"
        with pytest.raises(UsageError, match=expected), FolderLock(tmp_path / name) as lock:
            lock.take()


def test_file_system_without_locks(tmp_path, monkeypatch, caplog):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)
    with FolderLock(tmp_path) as lock:
        lock.take()
    assert "without locks (Function not implemented)" in caplog.text


def test_threads_that_take_and_give_back_are_never_together(tmp_path):
    inside, most, taken = [], [], []

    def work():
        for _ in range(200):
            try:
                with FolderLock(tmp_path / "run") as lock:
                    lock.take()
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    taken.append(1)
            except UsageError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(taken) > 0
