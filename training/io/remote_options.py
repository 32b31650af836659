"""Options of a command that name something in a store: the command works on local copies."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

from training.io.local_path import any_path, is_remote

# Written by the command, and both read and written.
_WRITTEN = ("output", "json")
_CHANGED = ("run", "cache_dir")
# What these name is opened where it is.
_LEFT = ("workdir", "data_dir", "dataset", "config", "overrides", "shards")
# With --shards these as well: more than a copy could hold, and other machines read them too.
_LEFT_FOR_SHARDS = ("source", "photos")
# With --workdir this too: it goes into configs, which are the same when a run is resumed.
_LEFT_FOR_RUNS = ("source",)
# Of a run, what is large and needed by resumption alone.
_SKIPPED = ("checkpoints/", "tensorboard/")


@contextlib.contextmanager
def local_options(options: argparse.Namespace) -> Iterator[None]:
    """Enters a context in which options name local copies of what is remote.

    What the command reads is fetched first; what it wrote is sent at the end, unless it failed.

    Args:
        options: changed for the time of the context.

    Raises:
        UsageError, TrainingError: as `training.io.remote_files.attempt`.
    """
    before = dict(vars(options))
    with contextlib.ExitStack() as stack:
        left = {*_LEFT}
        left.update(_LEFT_FOR_SHARDS if before.get("shards") else ())
        left.update(_LEFT_FOR_RUNS if before.get("workdir") else ())
        for name in before.keys() - left:
            setattr(options, name, _local(stack, name, before[name]))
        try:
            yield
        finally:
            vars(options).update(before)


@contextlib.contextmanager
def local_file(name: str | os.PathLike) -> Iterator[str]:
    """Yields the path of a local copy of a file or folder: `name` itself unless it is remote.

    States and events of a run are left out.

    Raises:
        UsageError, TrainingError: as `training.io.remote_files.attempt`.
    """
    with contextlib.ExitStack() as stack:
        yield str(_local(stack, "", name))


def _local(stack: contextlib.ExitStack, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_local(stack, name, one) for one in value]
    if not isinstance(value, (str, os.PathLike)) or not is_remote(value):
        return value
    # Slow to import, and what most commands never need.
    from training.io.folder_copy import fetched, kept_alike, sent_to

    address = any_path(value)
    if name in _WRITTEN:
        return stack.enter_context(sent_to(address))
    if name in _CHANGED:
        return stack.enter_context(kept_alike(address, _SKIPPED))
    return stack.enter_context(fetched(address, _SKIPPED))
