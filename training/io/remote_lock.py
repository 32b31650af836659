"""Keeping two runs out of one remote folder, where no kernel holds a lock."""

import json
import logging
import os
import socket
import threading
import time
import uuid
from typing import Any

from etils import epath

from training.errors import TrainingError, UsageError
from training.io import remote_files

logger = logging.getLogger("training")

# The owner writes so often, in seconds, and is taken for dead after a few silences.
BEAT = 15.0
PATIENCE = 60.0


class RemoteLock:
    """A context that may take a remote folder for this process, and gives it back at its end.

    The file `.lock` there names the owner, who writes it anew every `BEAT` seconds. Whoever finds
    one watches it: if it changes the folder is in use, if not its owner was killed. Two that start
    within the same moment may both take it: buckets have no locks.

    Args:
        folder: remote; need not exist.
    """

    def __init__(self, folder: epath.Path):
        self._file = folder / ".lock"
        self._folder = folder
        self._owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._number = uuid.uuid4().hex
        self._ended = threading.Event()
        self._beating: threading.Thread | None = None

    @property
    def is_taken(self) -> bool:
        """Whether this process has it."""
        return self._beating is not None

    def take(self) -> None:
        """Takes the folder, after up to `PATIENCE` seconds if a killed process had it.

        Raises:
            UsageError: if another process has it, naming that.
            TrainingError: if the store does not answer.
        """
        found = first = self._read()
        end = time.monotonic() + PATIENCE
        while first and time.monotonic() < end and not _is_dead_here(first):
            time.sleep(min(1.0, PATIENCE / 10))
            found = self._read()
            if not found:
                break
            if found != first:
                raise UsageError(
                    f"{self._folder} is in use by {found['owner']}. Wait until that ends, or name "
                    "another directory."
                )
        self._write(0)
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def __enter__(self) -> "RemoteLock":
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._beating:
            self._ended.set()
            self._beating.join()
            try:
                remote_files.remove(self._file)
            except TrainingError as error:
                # It goes stale; why the run ended matters more.
                logger.warning("%s", error)

    def _beat(self):
        beats = 0
        while not self._ended.wait(BEAT):
            beats += 1
            try:
                self._write(beats)
            except TrainingError as error:
                # What the run itself sends fails as well, and says so.
                logger.warning("%s", error)

    def _write(self, beats):
        content = {"owner": self._owner, "number": self._number, "beats": beats}
        content |= {"host": socket.gethostname(), "process": os.getpid()}

        def write():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(content))

        remote_files.attempt(write, f"{self._file} cannot be written")

    def _read(self) -> dict[str, Any]:
        def read():
            return self._file.read_text() if self._file.exists() else ""

        text = remote_files.attempt(read, f"{self._folder} cannot be read")
        try:
            return json.loads(text) if text else {}
        except ValueError:
            # Half a lock: it says nothing of its owner, but changes as a whole one does.
            return {"owner": "another process", "text": text}


def _is_dead_here(found: dict[str, Any]) -> bool:
    """Whether a lock is of a process of this machine that has ended."""
    if found.get("host") != socket.gethostname() or found.get("process") == os.getpid():
        return False
    try:
        os.kill(int(found["process"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
