"""Reading paths that may be in a store, which is asked again where it fails."""

import os
from collections.abc import Callable
from typing import TypeVar

from training.io.local_path import is_remote

Result = TypeVar("Result")


def read_path(path: str | os.PathLike, read: Callable[[], Result]) -> Result:
    """Returns what `read` returns.

    Args:
        path: of this machine or in a store.
        read: reads it, and may do so more than once.

    Raises:
        UsageError, TrainingError: if it is in a store that refuses or fails, naming it.
    """
    if not is_remote(path):
        return read()
    # Slow to import, and what most commands never need.
    from training.io import remote_files

    return remote_files.attempt(read, f"{os.fspath(path)} cannot be read")
