"""SavedModels on disk: as a directory, and as the .tar.gz that TF-Hub serves."""

import contextlib
import gzip
import os
import pathlib
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any

from keras_vit.files.zip_archives import require_plausible
from keras_vit.training.errors import first_line
from keras_vit.training.io.atomic import atomic_file

from ..errors import ExportError, damage_refused

SUFFIXES = (".tar.gz", ".tgz")


def write_saved_model(root: Any, directory: str | os.PathLike, **options: Any) -> None:
    """Writes `root` as `tf.saved_model.save` does, with its options.

    Raises `OSError` if it cannot be written, where TensorFlow raises errors of its own.
    """
    import tensorflow as tf

    try:
        tf.saved_model.save(root, str(directory), **options)
    except tf.errors.OpError as error:
        raise OSError(f"The SavedModel cannot be written: {first_line(error)}") from error


def pack(directory: str | os.PathLike, file: str | os.PathLike) -> pathlib.Path:
    """Writes a module as TF-Hub serves it: a gzipped tar with the SavedModel at its root.

    Equal modules give equal files: entries are sorted, without owners and times. Returns the file,
    a .tar.gz, which appears whole or not at all.
    """
    directory, file = pathlib.Path(directory), pathlib.Path(file)
    if not (directory / "saved_model.pb").is_file():
        raise ExportError(
            f"Expected a directory with saved_model.pb. Received: {directory}. "
            "`keras-vit export hub` writes one."
        )
    with (
        atomic_file(file) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted(directory.rglob("*")):
            archive.add(path, path.relative_to(directory).as_posix(), False, filter=_anonymous)
    return file


def _anonymous(entry):
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


@contextlib.contextmanager
def unpacked(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields `path`, or a temporary directory with the contents if it is a .tar.gz.

    Raises `ExportError` if the archive is damaged, claims far more bytes than it has, or has
    entries that are neither files nor directories, or whose path leads out of it.
    """
    path = pathlib.Path(path)
    if not path.name.endswith(SUFFIXES) or not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory() as directory:
        with (
            damage_refused(f"{path} cannot be unpacked", "Pack the module again."),
            tarfile.open(path, "r:gz") as archive,
        ):
            entries, claimed = [], 0
            for entry in archive:
                if not (entry.isfile() or entry.isdir()):
                    raise ValueError(f"{entry.name!r} is a link or device")
                claimed += entry.size
                # At once, as the entries after it stand behind all of its bytes.
                require_plausible(claimed, path.stat().st_size)
                entries.append(entry)
            # The filter refuses what leads out of the directory.
            archive.extractall(directory, entries, filter="data")
        yield pathlib.Path(directory)
