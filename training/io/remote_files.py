"""Copying files to and from stores, such as buckets, whose network fails now and then.

A store has no rename, and an object is there once it is written to its end. What belongs together
is therefore sent in an order that ends with what names it, see `training.io.folder_copy`.
"""

import functools
import logging
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from etils import epath

from training.errors import TrainingError, UsageError, first_line

logger = logging.getLogger("training")

ATTEMPTS = 5
FIRST_WAIT = 1.0  # seconds; each wait after it is twice as long
_CHUNK = 16 * 2**20

Result = TypeVar("Result")


def files_below(folder: epath.Path) -> list[str]:
    """Returns the paths of all files below a remote folder, relative to it, sorted.

    Raises:
        UsageError, TrainingError: as `attempt`.
    """

    def listed():
        # Asked for a folder, TensorFlow hides what is wrong with the file system.
        return sorted(_walk(folder, "")) if folder.exists() else []

    return attempt(listed, f"{folder} cannot be read")


def fetch(file: epath.Path, target: pathlib.Path) -> None:
    """Copies a remote file to this machine, whose folder is made.

    Raises:
        UsageError, TrainingError: as `attempt`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)

    def copy():
        with file.open("rb") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK)
        _check_length(target.stat().st_size, file)

    attempt(copy, f"{file} cannot be read")


def send(source: pathlib.Path, file: epath.Path) -> None:
    """Copies a file of this machine to a store, and checks that it is there in its length.

    Raises:
        FileNotFoundError: if `source` is gone.
        UsageError, TrainingError: as `attempt`.
    """
    # Open from now on: whoever removes it meanwhile does not disturb.
    with source.open("rb") as content:

        def copy():
            content.seek(0)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as sink:
                shutil.copyfileobj(content, sink, _CHUNK)
            _check_length(content.tell(), file)

        attempt(copy, f"{file} cannot be written")


def remove(file: epath.Path) -> None:
    """Removes a remote file, unless it is gone.

    Raises:
        UsageError, TrainingError: as `attempt`.
    """
    attempt(lambda: file.unlink(missing_ok=True), f"{file} cannot be removed")


def remove_folder(folder: epath.Path) -> None:
    """Removes a remote folder with all that is in it, unless it is gone.

    Raises:
        UsageError, TrainingError: as `attempt`.
    """
    attempt(lambda: folder.rmtree(missing_ok=True), f"{folder} cannot be removed")


def attempt(action: Callable[[], Result], failure: str) -> Result:
    """Returns what `action` returns, tried again after failures that may pass.

    Args:
        action: what may be done more than once.
        failure: said first if it fails.

    Raises:
        UsageError: if there is no such store here, or it refuses.
        TrainingError: if it failed `ATTEMPTS` times.
    """
    wait = FIRST_WAIT
    for number in range(1, ATTEMPTS + 1):
        try:
            return action()
        except _refusals() as error:
            raise UsageError(f"{failure}: {_in_a_line(error)}. {_what_to_do(error)}") from error
        except _failures() as error:
            if number == ATTEMPTS:
                raise TrainingError(
                    f"{failure} in {ATTEMPTS} attempts: {_in_a_line(error)}. Run the same command "
                    "again when the store answers."
                ) from error
            logger.warning("%s: %s. Trying again in %g s.", failure, _in_a_line(error), wait)
            time.sleep(wait)
            wait *= 2
    raise AssertionError("not reached")


def _in_a_line(error: Exception) -> str:
    """Returns what an error says, among it the lines that a server answered."""
    return first_line(" ".join(str(error).split()) or error)


def _check_length(expected, file):
    found = file.stat().length
    if found != expected:
        raise OSError(f"it has {found} bytes of {expected}")


def _walk(folder: epath.Path, prefix: str) -> Iterator[str]:
    if not folder.is_dir():
        return
    for child in folder.iterdir():
        if child.is_dir():
            yield from _walk(child, f"{prefix}{child.name}/")
        else:
            yield prefix + child.name


@functools.cache
def _refusals() -> tuple[type[Exception], ...]:
    import tensorflow as tf

    errors: Any = tf.errors
    return (
        ImportError,
        NotImplementedError,
        FileNotFoundError,
        PermissionError,
        errors.UnimplementedError,
        errors.NotFoundError,
        errors.PermissionDeniedError,
        errors.UnauthenticatedError,
    )


@functools.cache
def _failures() -> tuple[type[Exception], ...]:
    import tensorflow as tf

    return OSError, tf.errors.OpError


def _what_to_do(error: Exception) -> str:
    import tensorflow as tf

    if isinstance(error, (ImportError, NotImplementedError, tf.errors.UnimplementedError)):
        return (
            "The file system of this scheme is not installed: gs:// comes with TensorFlow, s3:// "
            "with tensorflow-io. Install it, or mount the bucket and name that folder."
        )
    return "Check the name of the bucket, and that this machine may read and write it."
