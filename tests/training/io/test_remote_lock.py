"""Two runs in one remote folder: the second is refused, unless the first is dead."""

import json
import os
import subprocess
import sys

import pytest
from etils import epath

from training.errors import UsageError
from training.io import remote_lock
from training.io.remote_lock import RemoteLock


@pytest.fixture
def folder(ram, monkeypatch):
    monkeypatch.setattr(remote_lock, "BEAT", 0.05)
    monkeypatch.setattr(remote_lock, "PATIENCE", 3.0)
    return epath.Path(ram()) / "run"


def test_the_second_is_refused_and_named(folder):
    with RemoteLock(folder) as first, RemoteLock(folder) as second:
        assert not first.is_taken
        first.take()
        assert first.is_taken
        with pytest.raises(UsageError, match=rf"in use by process {os.getpid()} on "):
            second.take()
    assert not (folder / ".lock").exists()


def left_behind(folder, host, process):
    folder.mkdir(parents=True)
    content = {"owner": "another", "host": host, "process": process, "beats": 7}
    (folder / ".lock").write_text(json.dumps(content))


def test_a_silent_owner_elsewhere_is_dead(folder, monkeypatch):
    monkeypatch.setattr(remote_lock, "PATIENCE", 0.2)
    left_behind(folder, "elsewhere", 1)
    with RemoteLock(folder) as lock:
        lock.take()
        assert lock.is_taken


def test_a_killed_process_of_this_machine_keeps_nobody_waiting(folder, monkeypatch):
    monkeypatch.setattr(remote_lock, "PATIENCE", 1e9)
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    left_behind(folder, remote_lock.socket.gethostname(), int(ended.stdout))
    with RemoteLock(folder) as lock:
        lock.take()


def test_half_a_lock_is_like_a_silent_one(folder, monkeypatch):
    monkeypatch.setattr(remote_lock, "PATIENCE", 0.2)
    folder.mkdir(parents=True)
    (folder / ".lock").write_text('{"own')
    with RemoteLock(folder) as lock:
        lock.take()
