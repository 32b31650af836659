"""A remote folder as a local one: what is in it is fetched, what is written there is sent."""

import contextlib
import logging
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from etils import epath

from training.errors import TrainingError
from training.io import remote_files

logger = logging.getLogger("training")

# What says that the files beside it are whole goes last, and is the first to be removed:
# TensorFlow's list of states, the digests of a state of the JAX engine, the graph of a module, the
# description of a data set.
_MANIFESTS = ("checkpoint", "files.json", "saved_model.pb", "dataset_info.json")


class FolderCopy:
    """A folder on this machine that stands for one in a store.

    A reader of the store finds the state before or the one after, wherever `publish` ends: files
    that others name are sent before those.

    Args:
        address: of the folder, which need not exist.
        skip: beginnings of relative paths that are not fetched.

    Attributes:
        path: the local folder, of the same name.
    """

    def __init__(self, address: epath.Path, skip: tuple[str, ...] = ()):
        self.address = address
        self._scratch = tempfile.mkdtemp(prefix="keras_vit.")
        self.path = pathlib.Path(self._scratch, address.name or "folder")
        self.path.mkdir()
        self._skip = skip
        self._sent: dict[str, tuple[int, int]] = {}

    def fetch(self) -> None:
        """Copies the remote folder here.

        Raises:
            UsageError, TrainingError: as `remote_files.attempt`.
        """
        for name in remote_files.files_below(self.address):
            if not name.startswith(self._skip) and not _is_unfinished(name):
                remote_files.fetch(self.address / name, self.path / name)
                self._sent[name] = _version(self.path / name)

    def publish(self) -> None:
        """Sends what is new or changed here, and removes there what was removed here.

        Raises:
            UsageError, TrainingError: as `remote_files.attempt`, naming this copy, which stays.
        """
        found = {}
        for file in self.path.rglob("*"):
            name = file.relative_to(self.path).as_posix()
            # A state that is too old may be removed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if file.is_file() and not _is_unfinished(name):
                    found[name] = _version(file)
        changed = [name for name, version in found.items() if self._sent.get(name) != version]
        gone = [name for name in self._sent if name not in found]
        try:
            for name in sorted(changed, key=_is_manifest):
                with contextlib.suppress(FileNotFoundError):
                    remote_files.send(self.path / name, self.address / name)
                    self._sent[name] = found[name]
            for name in sorted(gone, key=_is_manifest, reverse=True):
                remote_files.remove(self.address / name)
                del self._sent[name]
        except TrainingError as error:
            kept, self._scratch = self._scratch, ""
            raise type(error)(f"{error} This machine's copy is kept in {kept}.") from error

    def close(self) -> None:
        """Removes the local folder, unless `publish` failed."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


@contextlib.contextmanager
def sent_to(address: epath.Path) -> Iterator[pathlib.Path]:
    """Yields a local path to write a file or folder to; at the end it is sent to `address`.

    Raises:
        UsageError, TrainingError: as `remote_files.attempt`.
    """
    folder = FolderCopy(address.parent)
    try:
        yield folder.path / address.name
        folder.publish()
    finally:
        folder.close()


@contextlib.contextmanager
def kept_alike(address: epath.Path, skip: tuple[str, ...] = ()) -> Iterator[pathlib.Path]:
    """Yields a local copy of a remote folder; what is changed in it is sent at the end.

    Args:
        address: of the folder, which need not exist.
        skip: beginnings of paths in it that are left out.

    Raises:
        UsageError, TrainingError: as `remote_files.attempt`.
    """
    folder = FolderCopy(address, skip)
    try:
        folder.fetch()
        yield folder.path
        folder.publish()
    finally:
        folder.close()


@contextlib.contextmanager
def fetched(address: epath.Path, skip: tuple[str, ...] = ()) -> Iterator[pathlib.Path]:
    """Yields a local copy of a remote file or folder, removed at the end.

    Args:
        address: of the file or folder.
        skip: beginnings of paths in a folder that are left out.

    Raises:
        UsageError, TrainingError: as `remote_files.attempt`, if it is not there, too.
    """
    is_folder = remote_files.attempt(address.is_dir, f"{address} cannot be read")
    folder = FolderCopy(address if is_folder else address.parent, skip)
    try:
        if is_folder:
            folder.fetch()
            yield folder.path
        else:
            remote_files.fetch(address, folder.path / address.name)
            yield folder.path / address.name
    finally:
        folder.close()


def _version(file: pathlib.Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _is_manifest(name: str) -> bool:
    return name.rpartition("/")[2] in _MANIFESTS


def _is_unfinished(name: str) -> bool:
    parts = name.split("/")
    return any(part.startswith(".") for part in parts) or "_temp/" in name or ".tempstate" in name
