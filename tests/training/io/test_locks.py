"""A folder has one owner at a time, and none once that is gone."""

import concurrent.futures
import contextlib
import errno
import os

import pytest
from etils import epath

from keras_vit.training.errors import UsageError
from keras_vit.training.io import locks
from keras_vit.training.io.locks import lock

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
        with pytest.raises(UsageError, match=r"is a file\. Name a directory"):
            lock(tmp_path / name).__enter__()
    # A renamed folder is left alone, and so is the next of its name.
    with lock(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "moved")
    assert not (tmp_path / "run").exists()
    with lock(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "again")
        other = lock(tmp_path / "run")
        other.__enter__()
    assert (tmp_path / "run" / ".lock").exists()
    other.__exit__(None, None, None)


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
