"""Exact resumption: checkpoints that are whole, few, and replaced when damaged."""

import glob
import logging
import os
import shutil

import tensorflow as tf

from training.errors import TrainingError

logger = logging.getLogger("training")

PREFIX = "checkpoint"


class Checkpoints:
    """The last states of a run, in a folder, named by their step.

    A state becomes visible only once it is completely written, so a killed process leaves the
    one before. The position in the data is a function of the step and needs no saving.

    Args:
        directory: folder; created by the first save.
        state: {name: trackable} to save, with the `optimizer` whose `iterations` are the step.
        keep: number of states kept.
        writes: whether this process saves; in a multi-worker job one does, all restore.
    """

    def __init__(self, directory, state, keep=2, writes=True):
        self.directory = str(directory)
        self.writes = writes
        self.saved_step = None
        self._keep = keep
        self._optimizer = state["optimizer"]
        self._checkpoint = tf.train.Checkpoint(**state)
        self._manager = None

    @property
    def step(self):
        return int(self._optimizer.iterations.numpy())

    def restore(self):
        """Restores the newest state that can be read.

        A damaged state is reported, set aside under another name, and the one before is used.

        Returns:
            Its step, or None in a folder without states.

        Raises:
            TrainingError: if there are states and none can be read.
        """
        state = tf.train.get_checkpoint_state(self.directory)
        paths = list(state.all_model_checkpoint_paths) if state else []
        damaged = []
        while paths:
            path = paths[-1]
            try:
                # Reading all of it first leaves the variables as they are if it is damaged.
                _read_all(path)
                self._checkpoint.restore(path).assert_existing_objects_matched()
            except (tf.errors.OpError, ValueError, AssertionError) as error:
                logger.error(
                    "The checkpoint %s cannot be read (%s). Using the one before.",
                    path,
                    str(error).split("\n", 1)[0][:200],
                )
                damaged.append(paths.pop())
                continue
            if damaged and self.writes:
                self._set_aside(damaged, paths)
            self.saved_step = self.step
            return self.step
        if damaged:
            raise TrainingError(
                f"None of the checkpoints in {self.directory} can be read: "
                f"{', '.join(map(os.path.basename, damaged))}. Move the folder away to start anew."
            )
        return None

    def _set_aside(self, damaged, kept):
        for path in damaged:
            for file in glob.glob(glob.escape(path) + ".*"):
                folder, name = os.path.split(file)
                os.replace(file, os.path.join(folder, f"damaged-{name}"))
        tf.compat.v1.train.update_checkpoint_state(
            self.directory, kept[-1], all_model_checkpoint_paths=kept
        )

    def save(self):
        """Saves the current state, unless this very step is saved already.

        Raises:
            TrainingError: if it cannot be written; earlier states are untouched.
        """
        step = self.step
        if step == self.saved_step:
            return
        if self.writes:
            try:
                if self._manager is None:
                    self._manager = tf.train.CheckpointManager(
                        self._checkpoint,
                        self.directory,
                        max_to_keep=self._keep,
                        checkpoint_name=PREFIX,
                    )
                self._manager.save(checkpoint_number=step)
            except (tf.errors.OpError, OSError) as error:
                self._remove_remains(step)
                raise TrainingError(
                    f"The checkpoint of step {step} cannot be written to {self.directory}: "
                    f"{str(error).split(chr(10), 1)[0][:200]}. {self.last_good()} "
                    "Make room and run the same command again."
                ) from error
        self.saved_step = step

    def _remove_remains(self, step):
        for path in glob.glob(os.path.join(glob.escape(self.directory), f"{PREFIX}-{step}[._]*")):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

    def last_good(self):
        """Returns a sentence that names the state a new start would resume from."""
        if self.saved_step is None:
            return "There is no earlier checkpoint."
        return f"The last good checkpoint is that of step {self.saved_step}."


def _read_all(path):
    reader = tf.train.load_checkpoint(path)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)
