"""Where a run works: in its directory, or in a copy of one that lies in a store."""

import concurrent.futures
import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Protocol

from training.io.folder_lock import FolderLock
from training.io.local_path import any_path, is_remote


class Lock(Protocol):
    """Keeps two runs out of one place."""

    def take(self) -> None:
        """Takes the place for this process."""


class Workplace:
    """The directory of a run on this machine.

    Attributes:
        address: what people call it.
        path: the folder to work in.
    """

    def __init__(self, address: str | os.PathLike):
        self.address = self.path = pathlib.Path(address)

    @contextlib.contextmanager
    def entered(self) -> Iterator[Lock]:
        """Enters the place and yields its lock, which is given back at the end."""
        with FolderLock(self.path) as lock:
            yield lock

    def fetch(self) -> None:
        """Brings what an earlier run left."""

    def publish(self, wait: bool = True) -> None:
        """Brings the files of the run to where they belong, those of the state last.

        Args:
            wait: False lets the run go on meanwhile, until `settle`.

        Raises:
            TrainingError: if they, or those before, cannot be written there.
        """

    def settle(self) -> None:
        """Waits for what `publish` began; no state may be saved before.

        Raises:
            TrainingError: if it failed.
        """


class RemoteWorkplace(Workplace):
    """A local copy of a run directory in a store.

    A state counts once it is in the store: it is sent after every save, metrics first. One
    process of a job writes; so several JAX processes, each of which writes its part of a state,
    cannot work so.
    """

    def __init__(self, address: str | os.PathLike):
        from training.io.folder_copy import FolderCopy
        from training.io.remote_lock import RemoteLock

        self.address = any_path(address)
        self._copy = FolderCopy(self.address, skip=("checkpoints/damaged-",))
        self.path = self._copy.path
        self._lock = RemoteLock(self.address)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._pending: concurrent.futures.Future | None = None

    @contextlib.contextmanager
    def entered(self) -> Iterator[Lock]:
        """See `Workplace`; what is not yet published is, at the end."""
        try:
            with self._lock:
                yield self._lock
                self.publish()
        finally:
            self._thread.shutdown()
            self._copy.close()

    def fetch(self) -> None:
        """Copies the run directory here."""
        self._copy.fetch()

    def publish(self, wait: bool = True) -> None:
        """Sends what changed to the store, if this process has taken it."""
        self.settle()
        if self._lock.is_taken:
            self._pending = self._thread.submit(self._copy.publish)
        if wait:
            self.settle()

    def settle(self) -> None:
        """Waits for what is being sent."""
        pending, self._pending = self._pending, None
        if pending:
            pending.result()


def workplace(workdir: str | os.PathLike) -> Workplace:
    """Returns the place where the run of a work directory, local or remote, works."""
    return RemoteWorkplace(workdir) if is_remote(workdir) else Workplace(workdir)
