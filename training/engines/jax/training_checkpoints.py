"""Exact resumption: checkpoints that are whole, few, verified, and written while training goes on.

`checkpoint-STEP/` holds the arrays as orbax-checkpoint writes them, each process its part, and
`files.json`, the digests of its files: orbax itself restores altered bytes without a word.
"""

import concurrent.futures
import hashlib
import json
import logging
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from training.errors import TrainingError, first_line

logger = logging.getLogger("training")

PREFIX = "checkpoint-"
_DIGESTS = "files.json"

# {"weights": {path: array}, "optimizer": {name: array}, "numbers": {name: array}}
Arrays = Mapping[str, Mapping[str, Any]]


class Checkpoints:
    """The last states of a run, in a folder, named by their step.

    A state is written under another name, and renamed once it is complete, so that a killed
    process leaves the one before.

    Args:
        directory: `checkpoints/` of the run; created by the first save.
        keep: number of states kept.
        chief: whether this process verifies, renames and deletes.

    Attributes:
        saved_step: int, the last step that is known to be saved, or None.
    """

    def __init__(self, directory: str | os.PathLike, keep: int = 2, chief: bool = True):
        self.directory = pathlib.Path(directory).absolute()
        self.saved_step: int | None = None
        self._keep = keep
        self._chief = chief
        self._checkpointer = ocp.StandardCheckpointer()
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._pending: tuple[int, concurrent.futures.Future] | None = None

    def newest(self) -> int | None:
        """Returns the step of the newest state whose files are as they were written.

        The chief sets damaged states aside under another name, with a line in the log, and
        removes what a killed process left of states that it had not finished.

        Raises:
            TrainingError: if there are states and each is damaged.
        """
        found = self._newest_whole() if self._chief else None
        # A negative number stands for what is not a step, in every process.
        step = int(_from_chief(-1 if found is None else found))
        if step == _ALL_DAMAGED:
            raise TrainingError(
                f"None of the checkpoints in {self.directory} can be read. "
                "Move the folder away to start anew."
            )
        return None if step < 0 else step

    def _newest_whole(self):
        for unfinished in self.directory.glob(f".{PREFIX}*"):
            shutil.rmtree(unfinished)
        damaged = []
        for step in reversed(steps(self.directory)):
            path = self._path(step)
            reason = _damage(path)
            if not reason:
                for old in damaged:
                    aside = old.with_name(f"damaged-{old.name}")
                    # Of the same step, when that was damaged before.
                    shutil.rmtree(aside, ignore_errors=True)
                    old.rename(aside)
                return step
            logger.error(
                "The checkpoint %s cannot be read (%s). Using the one before.", path, reason
            )
            damaged.append(path)
        return _ALL_DAMAGED if damaged else None

    def restore(self, step: int, target: Arrays) -> dict[str, dict[str, Any]]:
        """Returns the arrays of a state, and its "numbers".

        Args:
            step: of `newest`.
            target: `jax.ShapeDtypeStruct`s that say how weights and optimizer are laid out.

        Raises:
            TrainingError: if the state holds other arrays.
        """
        path = self._path(step)
        try:
            numbers = self._checkpointer.metadata(path).item_metadata.tree["numbers"]
            numbers = {name: np.zeros(each.shape) for name, each in numbers.items()}
            return self._checkpointer.restore(path, {**target, "numbers": numbers})
        except (ValueError, KeyError, OSError) as error:
            raise TrainingError(
                f"The checkpoint {self._path(step)} does not fit this run: {first_line(error)}."
            ) from error

    def save(self, step: int, arrays: Arrays) -> None:
        """Starts to save a state, once the one before is complete; the arrays may change after.

        Raises:
            TrainingError: if the state before could not be written.
        """
        self.wait()
        if step == self.saved_step:
            return
        staging = self.directory / f".{PREFIX}{step}"
        try:
            if self._chief:
                self.directory.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(staging, ignore_errors=True)
            self._checkpointer.save(staging, arrays, force=True)
        except (ValueError, OSError) as error:
            raise self._failure(step, error) from error
        self._pending = step, self._thread.submit(self._complete, step, staging)

    def _complete(self, step, staging):
        self._checkpointer.wait_until_finished()
        if not self._chief:
            return
        digests = json.dumps(_digests(staging), indent=0, sort_keys=True)
        (staging / _DIGESTS).write_text(digests)
        staging.rename(self._path(step))
        for old in steps(self.directory)[: -self._keep]:
            shutil.rmtree(self._path(old))

    def wait(self) -> None:
        """Waits until the last state is complete.

        Raises:
            TrainingError: if it cannot be written; earlier states are untouched.
        """
        if self._pending is None:
            return
        (step, future), self._pending = self._pending, None
        try:
            future.result()
        except (ValueError, RuntimeError, OSError) as error:
            shutil.rmtree(self.directory / f".{PREFIX}{step}", ignore_errors=True)
            raise self._failure(step, error) from error
        self.saved_step = step

    def _failure(self, step, error):
        return TrainingError(
            f"The checkpoint of step {step} cannot be written to {self.directory}: "
            f"{first_line(error)}. Make room and run the same command again."
        )

    def _path(self, step):
        return self.directory / f"{PREFIX}{step}"


def steps(directory: str | os.PathLike) -> list[int]:
    """Returns the steps of the states in a folder, in order."""
    names = [path.name for path in pathlib.Path(directory).glob(f"{PREFIX}*") if path.is_dir()]
    numbers = [name.removeprefix(PREFIX) for name in names]
    return sorted(int(number) for number in numbers if number.isdigit())


def read_arrays(directory: str | os.PathLike, step: int) -> dict[str, dict[str, np.ndarray]]:
    """Returns the arrays of a state as NumPy arrays, as another engine wants them."""
    checkpointer = ocp.PyTreeCheckpointer()
    path = pathlib.Path(directory).absolute() / f"{PREFIX}{step}"
    tree = checkpointer.metadata(path).item_metadata.tree
    wanted = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return checkpointer.restore(path, restore_args=wanted)


_ALL_DAMAGED = -2


def _from_chief(value):
    if jax.process_count() == 1:
        return value
    return multihost_utils.broadcast_one_to_all(np.int32(value))


def _digests(path):
    """Returns {file: digest of its bytes}."""
    result = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.name != _DIGESTS:
            digest = hashlib.blake2b(digest_size=16)
            with file.open("rb") as stream:
                while chunk := stream.read(2**20):
                    digest.update(chunk)
            result[file.relative_to(path).as_posix()] = digest.hexdigest()
    return result


def _damage(path):
    """Returns what is wrong with the files of a state, or nothing."""
    try:
        written = dict(json.loads((path / _DIGESTS).read_text()))
        found = _digests(path)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return first_line(error)
    wrong = [name for name in written if found.get(name) != written[name]]
    return f"{wrong[0]} is not as it was written" if wrong else ""
