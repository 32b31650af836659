"""The protocol between the trainer, which knows no backend, and the engine that runs its updates.

An engine places a model and its optimizer on devices, runs updates, sums over splits, saves and
restores. `training.engines.tensorflow` does so under TensorFlow's distribution strategies,
`training.engines.jax` on a mesh of JAX's devices; `create_engine` takes that of Keras's backend.
"""

import abc
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
from ml_collections import ConfigDict

from keras_vit.typing import Tensor
from training.engines.frozen_weights import is_seed
from training.engines.worker_watch import SECONDS_TO_NAME_THE_LOST, Watch
from training.errors import TrainingError, UsageError, first_line

logger = logging.getLogger("training")

# Among the numbers of a state since masks are functions of the place in the global batch alone.
MASKS = "masks_by_place"

# (num_input_pipelines, input_pipeline_id) -> `tf.data.Dataset` of batches with static shapes.
# Pipeline i of n yields the i-th of n equal parts of every global batch, so that all of them
# together, one for each host, read what one would.
MakeDataset = Callable[[int, int], Any]

# Applied to a batch of images on the device, before the model.
PrepareImages = Callable[[Tensor], Tensor]

# (float32 logits, batch) -> float32 vector, the sum of something over the batch's examples.
BatchSums = Callable[[Tensor, Mapping[str, Tensor]], Tensor]

# What the loop itself counts, by name: float64 arrays, kept bit for bit.
Numbers = Mapping[str, np.ndarray]


class Report(NamedTuple):
    """What a call of several updates tells the trainer; equal in every process.

    Attributes:
        loss, gradient_norm: means over the updates of the call.
        save, stop: whether any process asked for a checkpoint, or to stop.
        bad_step: the first update whose loss or gradient was not usable, or -1.
    """

    loss: float
    gradient_norm: float
    save: bool
    stop: bool
    bad_step: int


class Engine(abc.ABC):
    """Runs the updates of one model, in one process or in several that act together.

    The trainer calls, in this order: the constructor, `build`, `restore`, `make_batches`, then
    `train`, `save`, `averaged_weights` and what `make_split_sums` returned in turns, and `close`
    at the end, whatever happened. Every process of a job makes the same calls with the same
    arguments, except for the requests of `train`: any of them may wait for the other processes.

    Randomness is stateless: dropout, stochastic depth and masks are functions of `config.seed`,
    the number of the update and the place of the example in the batch.

    Args:
        config: a complete config (`config_keys.complete`). The engine reads `strategy` and what
            places it, `seed`, `batch_size`, `eval_batch_size`, `accumulation_steps`,
            `jit_compile`, `loss_limit` and `keep_checkpoints`. Created first of all, before
            anything else touches devices.

    Attributes:
        strategies: values of `config.strategy` that this engine knows.
        is_chief: whether this process writes the files of the run.
        writes_in_parts: whether all processes write the states, each its part.
        model: the `keras.Model`, from `build` on. Its variables hold the weights of the last
            update only within `averaged_weights`; elsewhere they may be stale.
        step: int, updates done.
        saved_step: int, the last step that is known to be saved, or None.
        watch: of the other processes of the job; None where there are none.

    Raises:
        UsageError: for a strategy of another engine, an environment that lacks what the strategy
            needs, or a batch that does not split evenly over the devices (and micro-batches).
    """

    strategies: ClassVar[tuple[str, ...]]
    is_chief: bool
    writes_in_parts: ClassVar[bool] = False
    model: keras.Model
    watch: Watch | None = None

    def __init__(self, config: ConfigDict):
        if config.strategy not in self.strategies:
            raise UsageError(
                f"config.strategy: expected {' or '.join(self.strategies)} with the backend "
                f"{keras.backend.backend()}. Received: {config.strategy!r}. "
                'KERAS_BACKEND="jax" or "tensorflow" in the environment chooses the backend.'
            )
        self.config = config
        self.step = 0
        self.saved_step: int | None = None

    def check_batch_sizes(self, devices: int) -> None:
        """Checks that batches split evenly over `devices`, and over micro-batches on each.

        Raises:
            UsageError: if one does not.
        """
        for name, parts in (("batch_size", self.config.accumulation_steps), ("eval_batch_size", 1)):
            if self.config[name] % (devices * parts):
                micro = f" and {parts} micro-batches" if parts > 1 else ""
                raise UsageError(
                    f"config.{name}={self.config[name]} does not split evenly over {devices} "
                    f"replicas{micro}: expected a multiple of {devices * parts}."
                )

    @abc.abstractmethod
    def build(
        self,
        make_model: Callable[[], keras.Model],
        make_optimizer: Callable[[keras.Model], keras.optimizers.Optimizer],
        loss: keras.losses.Loss,
        prepare_images: PrepareImages | None = None,
    ) -> None:
        """Makes the model and its optimizer in their place and prepares the update.

        An update sums `loss / batch_size` over the examples of the whole batch, sums gradients
        over all devices, and only then clips and applies them
        (`training.recipes.optimizers`: `apply_reduced`).

        Args:
            make_model: returns the model, images to logits, with its first weights; the global
                seed is set before.
            make_optimizer: returns an optimizer of `training.recipes.optimizers` for the model,
                not built.
            loss: of `training.recipes.losses`.
            prepare_images: applied to the images of training; None leaves them as they are.

        Raises:
            ValueError: if the model or the optimizer cannot be made, or the model keeps running
                statistics, which no engine updates.
        """

    def restore(self, directory: str | os.PathLike) -> dict[str, np.ndarray] | None:
        """Restores the newest readable state of a folder, to which `save` writes from now on.

        A damaged state is reported in the log, set aside under another name by the chief, and the
        one before it is used. `step` and `saved_step` become those of the state.

        Args:
            directory: `checkpoints/` of the run; need not exist.

        Returns:
            The numbers that were given to `save` with the state; None if there is no state.

        Raises:
            TrainingError: if there are states and none can be read.
        """
        if self.watch:
            self.watch.resume_hint = "Training resumes from the last checkpoint that was saved. "
        return self._restore(directory)

    @abc.abstractmethod
    def _restore(self, directory: str | os.PathLike) -> dict[str, np.ndarray] | None:
        """See `restore`."""

    def _tell_of_other_masks(self) -> None:
        """Says that a state without `MASKS` is of a run that drew other ones, if it draws any."""
        if self.is_chief and any(map(is_seed, self.model.non_trainable_variables)):
            logger.warning(
                "The state of step %d was saved by an earlier version, which drew other dropout "
                "masks: from here on they are those of this version.",
                self.step,
            )

    @abc.abstractmethod
    def save(self, numbers: Numbers, *, wait: bool = True) -> None:
        """Saves weights, optimizer and numbers as the state of `step`, unless that is saved.

        A state becomes visible only once it is completely written, so that a process that is
        killed leaves the one before. `config.keep_checkpoints` states are kept.

        Args:
            numbers: float64 arrays of the loop, which `restore` returns.
            wait: False allows the state to be written while training goes on. The next `save` and
                `close` wait for it, and raise what went wrong with it.

        Raises:
            TrainingError: if a state cannot be written; earlier ones are untouched.
        """

    @abc.abstractmethod
    def make_batches(self, make_dataset: MakeDataset) -> Iterator[Any]:
        """Returns the input of `train`, an iterator of this engine's own kind.

        Args:
            make_dataset: called for each input pipeline of this process; its batches are
                `{"image": (batch, height, width, channels), "label": (batch, classes)}`, and the
                first is that of update `step`.
        """

    @abc.abstractmethod
    def train(
        self, batches: Iterator[Any], count: int, *, save: bool = False, stop: bool = False
    ) -> Report:
        """Runs `count` updates on the next batches, and adds them to `step`.

        Args:
            batches: of `make_batches`.
            count: at least 1.
            save, stop: requests of this process, of which the reports of all processes tell.
        """

    @property
    @abc.abstractmethod
    def learning_rate(self) -> float:
        """The rate of the next update."""

    @abc.abstractmethod
    def make_split_sums(
        self,
        batch_sums: BatchSums,
        make_dataset: MakeDataset,
        prepare_images: PrepareImages | None = None,
    ) -> Callable[[], np.ndarray]:
        """Returns a function that sums over a whole split, for exact evaluation.

        The function returns the float64 sum of `batch_sums` over all batches of all processes,
        equal in each of them; a ValueError if there are none. It uses the current weights, or
        within `averaged_weights` the averages.

        Args:
            batch_sums: written with `keras.ops`; compiled, and called with the float32 logits of
                a batch (or of a device's part of it) and the rest of that batch.
            make_dataset: of batches with an `image`; rows that only pad the last batch are for
                `batch_sums` to leave out. Every process gets equally many batches.
            prepare_images: applied to the images; None leaves them as they are.
        """

    @abc.abstractmethod
    def averaged_weights(self) -> contextlib.AbstractContextManager[keras.Model]:
        """Enters a context in which `model`, which it gives, has the averages as its weights.

        Without an average (`config.ema_decay=0`) these are the weights of the last update. Within
        the context the model is an ordinary Keras model, whole in every process: it can be called
        and saved. Do not train in it.
        """

    @abc.abstractmethod
    def gather(self, text: str) -> list[str]:
        """Waits for all processes and returns the text of each, in the same order in all."""

    @abc.abstractmethod
    def start_profile(self, directory: str | os.PathLike) -> None:
        """Starts to record what the devices do, for TensorBoard."""

    @abc.abstractmethod
    def stop_profile(self) -> None:
        """Stops recording and writes the profile to the folder given before."""

    @abc.abstractmethod
    def runtime_errors(self) -> tuple[type[Exception], ...]:
        """Returns what the backend's runtime and its input raise when they fail."""

    @contextlib.contextmanager
    def translated_errors(self, explain: Callable[[], str] = str) -> Iterator[None]:
        """Enters a context that raises the failures of the backend's runtime as `TrainingError`.

        The message names the last step, the reason without the backend's stack of frames, and the
        last good checkpoint. Where another process was lost, it says so, and that all processes
        are to be started again.

        Args:
            explain: called after a failure; returns a sentence that is added to the reason, or "".
        """
        try:
            yield
        except self.runtime_errors() as error:
            message = " ".join(filter(None, (f"{reason(error).rstrip('.')}.", explain())))
            if self.watch:
                time.sleep(SECONDS_TO_NAME_THE_LOST)
                raise TrainingError(
                    f"The workers lost contact after step {self.step}: {message} "
                    f"{self.last_good()} Start all workers again."
                ) from error
            raise TrainingError(
                f"Training failed after step {self.step}: {message} {self.last_good()}"
            ) from error

    @abc.abstractmethod
    def close(self) -> None:
        """Waits for a state that is being written, then leaves the other processes in order.

        From now on they may end; the chief, on which they may depend, waits for them.

        Raises:
            TrainingError: if the state cannot be written.
        """

    def last_good(self) -> str:
        """Returns a sentence that names the state from which a new start would resume."""
        return last_good(self.saved_step)


def last_good(saved_step: int | None) -> str:
    """Returns a sentence that names the last saved step; None is none."""
    if saved_step is None:
        return "There is no earlier checkpoint."
    return f"The last good checkpoint is that of step {saved_step}."


def reason(error: Exception) -> str:
    """Returns what an error of a runtime says, without where in a graph it was."""
    places = ("Graph execution error", "Detected at node", "<stack", "File ", "[[", "  ")
    lines = (line.strip() for line in str(getattr(error, "message", error)).splitlines())
    said = [line for line in lines if line and not line.startswith(places)]
    return first_line("\n".join(said) or type(error).__name__, 300)


def create_engine(config: ConfigDict) -> Engine:
    """Returns the engine of Keras's backend (`KERAS_BACKEND`), `tensorflow` or `jax`.

    Raises:
        UsageError: for another backend, one that is not installed, or a config that it cannot run.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from training.engines.tensorflow.engine import TensorFlowEngine

        return TensorFlowEngine(config)
    if backend == "jax":
        try:
            from training.engines.jax.engine import JaxEngine
        except ModuleNotFoundError as error:
            raise UsageError(
                f"KERAS_BACKEND=jax: training with JAX needs {error.name}, which is not installed."
            ) from error
        return JaxEngine(config)
    raise UsageError(f"KERAS_BACKEND: expected tensorflow or jax. Received: {backend!r}.")
