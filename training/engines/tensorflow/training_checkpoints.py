"""Exact resumption: checkpoints that are whole, few, and replaced when damaged."""

import glob
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from training.engines.base import Numbers, last_good
from training.engines.tensorflow.checkpoint_files import (
    list_paths,
    read_values,
    set_aside,
    state_paths,
)
from training.errors import TrainingError, first_line
from training.io.paths import glob_safe

logger = logging.getLogger("training")

PREFIX = "checkpoint"
# Where TensorFlow collects the parts of a state, which become visible at the end.
_FOLDER = re.compile(rf"{PREFIX}-\d+_temp")
_PART = re.compile(
    rf"(?P<state>{PREFIX}-\d+)\.(index|data-\d+-of-\d+)(?P<unfinished>\.tempstate\d+)?"
)
# The list of states, before it has its name.
_LIST = re.compile(r"checkpoint\.tmp[0-9a-f]+")
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


class Checkpoints:
    """The last states of a run, in a folder, named by their step.

    A state becomes visible only once it is completely written, so a killed process leaves the
    one before. The position in the data is a function of the step and needs no saving.

    Args:
        directory: folder; created by the first save.
        state: {name: trackable} to save, with the `optimizer` whose `iterations` are the step.
        keep: number of states kept.
        writes: whether this process saves; in a multi-worker job one does, all restore.

    Attributes:
        saved_step: int, the last step that is known to be saved, or None.
        numbers: the float64 arrays that were saved with the state restored, by name, or None.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        state: Mapping[str, Any],
        keep: int = 2,
        writes: bool = True,
    ):
        self.directory = os.path.abspath(directory)
        self._folder = glob_safe(self.directory)
        self.writes = writes
        self.saved_step: int | None = None
        self.numbers: dict[str, np.ndarray] | None = None
        self._keep = keep
        self._state = dict(state)
        self._manager = None

    @property
    def step(self) -> int:
        """Updates that the optimizer has made."""
        return int(self._state["optimizer"].iterations.numpy())

    def restore(self) -> int | None:
        """Restores the newest state that can be read.

        A damaged state is reported, set aside under another name, and the one before is used. One
        that a killed process had not finished counts for nothing.

        Returns:
            Its step, or None in a folder without states.

        Raises:
            TrainingError: if there are states and none can be read.
        """
        paths = state_paths(self.directory)
        damaged: list[str] = []
        while paths:
            path = paths[-1]
            try:
                # Reading all of it first leaves the variables as they are if it is damaged.
                values = read_values(path)
                restored = tf.train.Checkpoint(**self._state).restore(path)
                restored.assert_existing_objects_matched().expect_partial()
            except (tf.errors.OpError, ValueError, AssertionError) as error:
                paths.pop()
                if os.path.isdir(f"{path}_temp"):  # its parts were still being joined
                    continue
                logger.error(
                    "The checkpoint %s cannot be read (%s). Using the one before.",
                    os.path.join(self.directory, os.path.basename(path)),
                    first_line(error),
                )
                damaged.append(path)
                continue
            if self.writes:
                set_aside(damaged)
                list_paths(self.directory, paths)
                self._remove_unfinished(paths)
            self.saved_step = self.step
            self.numbers = {
                name: np.asarray(values[name + _VALUE], np.float64)
                for name in (key.removesuffix(_VALUE) for key in values if key.endswith(_VALUE))
                if "/" not in name and name not in (*self._state, "save_counter")
            }
            return self.step
        if damaged:
            raise TrainingError(
                f"None of the checkpoints in {self.directory} can be read: "
                f"{', '.join(map(os.path.basename, damaged))}. Move the folder away to start anew."
            )
        if self.writes and os.path.isdir(self.directory):
            self._remove_unfinished([])
        return None

    def _remove_unfinished(self, paths):
        """Removes what a killed process left of states that it had not finished."""
        kept = {os.path.basename(path) for path in paths}
        for file in pathlib.Path(self.directory).iterdir():
            part = _PART.fullmatch(file.name)
            if file.is_dir() and _FOLDER.fullmatch(file.name):
                shutil.rmtree(file)
            elif _LIST.fullmatch(file.name) or (
                part and (part["unfinished"] or part["state"] not in kept)
            ):
                file.unlink()

    def save(self, numbers: Numbers | None = None) -> None:
        """Saves the current state, unless this very step is saved already.

        Args:
            numbers: float64 arrays to save with it, by name, the same names every time.

        Raises:
            TrainingError: if it cannot be written; earlier states are untouched.
        """
        step = self.step
        if step == self.saved_step:
            return
        if self.writes:
            try:
                self._write(step, numbers or {})
            except (tf.errors.OpError, OSError) as error:
                self._remove_remains(step)
                raise TrainingError(
                    f"The checkpoint of step {step} cannot be written to {self.directory}: "
                    f"{first_line(error)}. {last_good(self.saved_step)} "
                    "Make room and run the same command again."
                ) from error
        self.saved_step = step

    def _write(self, step, numbers):
        os.makedirs(self.directory, exist_ok=True)
        if self._manager is None:
            self._variables = {
                name: tf.Variable(value, dtype=tf.float64) for name, value in numbers.items()
            }
            self._manager = tf.train.CheckpointManager(
                tf.train.Checkpoint(**self._state, **self._variables),
                self._folder,
                max_to_keep=self._keep,
                checkpoint_name=PREFIX,
            )
        for name, value in numbers.items():
            self._variables[name].assign(value)
        self._manager.save(checkpoint_number=step)

    def _remove_remains(self, step):
        for path in glob.glob(os.path.join(glob.escape(self.directory), f"{PREFIX}-{step}[._]*")):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
