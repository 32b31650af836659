"""One lock of a folder, of this machine or of a store, to keep two runs out of it."""

import contextlib
import errno
import logging
import os
import pathlib
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING

from keras_vit.files.hidden_folder import fcntl, make_folder, writing

from ..errors import TrainingError, UsageError
from . import remote_stores
from .paths import any_path, is_remote, read_path

if TYPE_CHECKING:
    from etils import epath

logger = logging.getLogger("keras_vit")

# Seconds between two writes of a remote lock by its owner, and without any until it counts as dead.
BEAT, PATIENCE = 15.0, 60.0
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def lock(folder: "str | os.PathLike | epath.Path") -> contextlib.AbstractContextManager[None]:
    """Returns a context that acquires a folder for this process, and releases it at its end.

    On this machine the kernel locks the file `.lock`, and unlocks it when the process ends. In a
    store the owner writes that file every `BEAT` seconds; two that start within the same moment may
    both acquire it, for buckets have no locks. The lock of a killed process keeps nobody out, in a
    store after `PATIENCE` seconds at most. A lock binds only those that ask for it, and nobody on
    Windows or a file system without locks. The folder is made if it does not exist, and then
    removed at the end if it is empty.

    Raises on entering:
        UsageError: if another process has it, naming that.
        OSError: if the folder cannot be made or written, as `hidden_folder.writing`.
        TrainingError: if the store does not answer.
    """
    return _lock_in_store(any_path(folder)) if is_remote(folder) else _lock_here(folder)


@contextlib.contextmanager
def _lock_here(folder):
    path = pathlib.Path(folder).absolute() / ".lock"
    made: list[pathlib.Path] = []
    file = None
    try:
        while file is None:
            # Whoever releases the folder removes it, while another makes it or opens the file.
            with contextlib.suppress(FileExistsError, FileNotFoundError), writing(path.parent):
                missing = [each for each in path.parents if not each.exists()]
                make_folder(path.parent)
                made += missing
                file = _locked_file(path)
        file.truncate(0)
        file.write(_this_process())
        file.flush()
        yield
    finally:
        if file is not None:
            # Renamed or removed meanwhile: a folder of that name is another's.
            with contextlib.suppress(FileNotFoundError):
                is_own = os.path.samestat(os.fstat(file.fileno()), path.stat())
                if fcntl is None:  # Windows removes no open file.
                    file.close()
                if is_own:
                    path.unlink()
            file.close()
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()


def _locked_file(path):
    """Returns the file, open and locked; None if it is another file by now."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("a+"))
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise _in_use(path.parent, file.read() or "another process") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning(
                "%s is on a file system without locks (%s): nothing keeps a second run out of it.",
                *(path.parent, error.strerror),
            )
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            stack.pop_all()
            return file
    return None


@contextlib.contextmanager
def _lock_in_store(folder):
    file, ended = folder / ".lock", threading.Event()

    def attempted(action, *arguments):
        # The run's uploads fail as well, and end it; a lock that stays goes stale.
        try:
            action(*arguments)
        except TrainingError as error:
            logger.warning("%s", error)

    def write():
        # Other content each time.
        remote_stores.send(f"{_this_process()}\n{uuid.uuid4().hex}".encode(), file)

    def beat():
        while not ended.wait(BEAT):
            attempted(write)

    _wait_until_free(folder, file)
    write()
    heartbeat = threading.Thread(target=beat, daemon=True)
    heartbeat.start()
    try:
        yield
    finally:
        ended.set()
        heartbeat.join()
        attempted(remote_stores.remove, file)


def _wait_until_free(folder, file):
    """Watches a lock: its owner is alive if it changes, and dead if it does not."""

    def read():
        return read_path(folder, lambda: file.read_text() if file.exists() else "")

    found = first = read()
    end = time.monotonic() + PATIENCE
    while found and time.monotonic() < end:
        time.sleep(min(1.0, PATIENCE / 10))
        found = read()
        if found and found != first:
            raise _in_use(folder, found.partition("\n")[0])


def _this_process():
    return f"process {os.getpid()} on {socket.gethostname()}"


def _in_use(folder, owner):
    return UsageError(
        f"{folder} is in use by {owner}. Wait until that ends, or name another directory."
    )
