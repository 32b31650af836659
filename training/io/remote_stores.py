"""Copies to and from stores, such as buckets, whose network fails now and then.

TensorFlow and etils read and write most files in stores directly. Models, checkpoints, archives and
the folder of a run are copied. A store has no rename, and an object appears once it is written to
its end. So of files that belong together, the one that names the others is sent last.
"""

import argparse
import contextlib
import io
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keras_vit.checkpoints.model_source import Kind, model_source
from keras_vit.files.hidden_folder import scratch_folder

from ..errors import TrainingError
from .image_listing import walk
from .paths import any_path, attempt, is_remote, read_path, size_and_time

if TYPE_CHECKING:
    from etils import epath

_CHUNK = 16 * 2**20
# The digests of a state, the graph of a module, the description of a data set. The files beside
# them are whole: these are sent last and removed first.
_MANIFESTS = ("manifest.json", "saved_model.pb", "dataset_info.json")

# The use that a command makes of an option's path: "" reads it, "write", "change" reads and writes,
# "keep" opens it where it is. Or a function of the options that tells.
Store = str | Callable[[argparse.Namespace], str]
# The large files of a run, which resumption alone needs.
_SKIPPED = ("checkpoints/", "tensorboard/")


def files_below(folder: "epath.Path") -> list[str]:
    """Returns the paths of the files below a remote folder but hidden ones, relative, sorted."""
    # Asked whether a path is a folder, TensorFlow hides failures of the file system.
    return read_path(folder, lambda: sorted(_versions(folder)) if folder.exists() else [])


def fetch(file: "epath.Path", target: pathlib.Path) -> None:
    """Copies a remote file to this machine, where its folder is made, and checks its length."""
    target.parent.mkdir(parents=True, exist_ok=True)

    def copy():
        with file.open("rb") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)
        _check_length(target.stat().st_size, file)

    read_path(file, copy)


def send(source: pathlib.Path | bytes, file: "epath.Path") -> None:
    """Writes a remote file, and its folder, of a file of this machine or the content.

    Checks the length that it has there. Raises `FileNotFoundError` if `source` is gone.
    """
    # Open from now on, so that removing it meanwhile does not disturb.
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as content:

        def copy():
            content.seek(0)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as sink:
                shutil.copyfileobj(content, sink, _CHUNK)
            _check_length(content.tell(), file)

        attempt(copy, f"{file} cannot be written")


def remove(path: "epath.Path") -> None:
    """Removes a remote file, or a folder with all that is in it, unless it is gone."""

    def removed():
        (path.rmtree if path.is_dir() else path.unlink)(missing_ok=True)

    attempt(removed, f"{path} cannot be removed")


class FolderCopy:
    """A folder of this machine, `path`, that stands for one of the same name in a store.

    Wherever `upload` ends, a reader of the store finds the state before or the one after: files
    that others name are sent before those. The folder at `address` need not exist; `skip` are
    beginnings of relative paths that are not downloaded.
    """

    def __init__(self, address: "epath.Path", skip: tuple[str, ...] = ()):
        self._address, self._skip = address, skip
        self._stack = contextlib.ExitStack()
        self._scratch = self._stack.enter_context(scratch_folder())
        self._kept: pathlib.Path | None = None
        self._sent: dict[str, tuple[int, int]] = {}
        self.path = self._scratch / (address.name or "folder")
        self.path.mkdir()

    def download(self) -> None:
        """Copies the remote folder here."""
        for name in files_below(self._address):
            if not name.startswith(self._skip):
                fetch(self._address / name, self.path / name)
                self._sent[name] = size_and_time(self.path / name)

    def upload(self) -> None:
        """Sends new and changed files, and removes from the store what was removed here.

        `UsageError` and `TrainingError` name the folder where this copy stays.
        """
        # A state that is too old may be removed meanwhile, which `walk` passes over.
        found = _versions(self.path)
        changed = [name for name, version in found.items() if self._sent.get(name) != version]
        gone = self._sent.keys() - found.keys()
        try:
            for name in sorted(changed, key=_is_manifest):
                with contextlib.suppress(FileNotFoundError):
                    send(self.path / name, self._address / name)
                    self._sent[name] = found[name]
            for name in sorted(gone, key=_is_manifest, reverse=True):
                remove(self._address / name)
                del self._sent[name]
        except TrainingError as error:
            # Under its present name the next process would remove it.
            visible = self._scratch.name.strip(".").removesuffix(".unfinished")
            self._kept = self._scratch.with_name(visible)
            raise type(error)(f"{error} This machine's copy is kept in {self._kept}.") from error

    def close(self) -> None:
        """Removes the local folder, or keeps it under another name if `upload` failed."""
        if self._kept and self._scratch.exists():
            self._scratch.rename(self._kept)
        self._stack.close()


@contextlib.contextmanager
def copied(
    address: "epath.Path", store: str = "", skip: tuple[str, ...] = ()
) -> Iterator[pathlib.Path]:
    """Yields a local copy of a remote file or folder, which has to exist.

    `store` is what is done with it: "" reads it, "change" reads a folder and sends it at the end,
    "write" yields the path of a file or folder to write, and sends that. `skip` as in `FolderCopy`.
    """
    is_folder = store == "change" or (not store and read_path(address, address.is_dir))
    with contextlib.closing(FolderCopy(address if is_folder else address.parent, skip)) as copy:
        path = copy.path if is_folder else copy.path / address.name
        if store != "write":
            copy.download() if is_folder else fetch(address, path)
        yield path
        if store:
            copy.upload()


@contextlib.contextmanager
def local_options(options: argparse.Namespace, stores: Mapping[str, Store]) -> Iterator[None]:
    """Lets a command's options name, within the context, local copies of what is in a store.

    Paths that the command reads are fetched first; paths that it wrote are sent at the end, unless
    it failed. `stores` are {option: "write", "change" or "keep"}; it reads the other options.
    """
    before = dict(vars(options))
    with contextlib.ExitStack() as stack:
        for name, value in before.items():
            store = stores.get(name, "")
            store = store if isinstance(store, str) else store(options)
            if store != "keep":
                setattr(options, name, _local(stack, store, value))
        try:
            yield
        finally:
            vars(options).update(before)


@contextlib.contextmanager
def local_file(name: str | os.PathLike) -> Iterator[str]:
    """Yields the path of a local copy of a file or folder: `name` itself unless it is remote.

    States and events of a run are left out.
    """
    with contextlib.ExitStack() as stack:
        yield str(_local(stack, "", name))


def _local(stack: contextlib.ExitStack, store: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_local(stack, store, one) for one in value]
    if not isinstance(value, (str, os.PathLike)) or not is_remote(value):
        return value
    if model_source(value).kind is Kind.HUGGING_FACE and not store:
        from keras_vit.checkpoints import find_checkpoint  # imports Keras

        return str(find_checkpoint(value))
    return stack.enter_context(copied(any_path(value), store, _SKIPPED))


def _check_length(expected: int, file: "epath.Path") -> None:
    found = file.stat().length
    if found != expected:
        raise OSError(f"it has {found} bytes of {expected}")


def _versions(folder: "pathlib.Path | epath.Path") -> dict[str, tuple[int, int]]:
    """Returns {relative path: (size, time)} of the files below a folder but hidden ones."""
    return {name: version for name, version in walk(folder, details=True) if version is not None}


def _is_manifest(name: str) -> bool:
    return name.rpartition("/")[2] in _MANIFESTS
