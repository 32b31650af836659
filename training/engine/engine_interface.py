"""The protocol between the trainer, which knows no backend, and the engine that runs its updates.

`training.engine.tensorflow` runs them under TensorFlow's distribution strategies,
`training.engine.jax` on a mesh of JAX's devices; `create_engine` creates either.
"""

import abc
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops
from ml_collections import ConfigDict

from keras_vit.models.image_model import require_kind
from keras_vit.optimizers import Optimizer
from keras_vit.type_hints import Tensor

from ..errors import TrainingError, UsageError, first_line
from . import checkpoints, update
from .checkpoints import Checkpoints, Shards
from .update import Objective, PrepareImages, Report, Totals
from .worker_watch import SECONDS_TO_NAME_THE_LOST, Watch

# (num_input_pipelines, input_pipeline_id) -> `tf.data.Dataset` of batches with static shapes.
# Pipeline i of n yields the i-th of n equal parts of every global batch, so that all of them
# together, one for each host, read what one would.
MakeDataset = Callable[[int, int], Any]


class Engine(update.Differentiation, abc.ABC):
    """Runs the updates of one model, in one process or in several that act together.

    The trainer calls, in this order: the constructor, `build`, `restore`, `make_batches`, then
    `train`, `save`, `averaged_weights` and what `make_split_sums` returned in turns, and `close`
    at the end, whatever happened. Every process of a job makes the same calls with the same
    arguments, except for the requests of `train`: any of them may wait for the other processes.

    Args:
        config: a complete config (`schema.complete`). Create the engine first of all, before
            anything else touches devices.

    Attributes:
        strategies: values of `config.strategy` that this engine knows.
        part: this process's number among those that write checkpoints, or None. 0 is the chief, the
            first of `gather`.
        parts: how many processes write checkpoints.
        runtime_errors: exceptions that the backend's runtime and its input raise when they fail.
        model, optimizer, update: from `build` on. The variables hold the values of the last update
            only within `averaged_weights`; elsewhere they may be stale.
        step: int, updates done.
        watch: of the other processes of the job; None where there are none.

    Raises:
        UsageError: for a strategy of another engine, an environment that lacks what the strategy
            needs, or a batch that does not split evenly over the devices (and micro-batches).
    """

    strategies: ClassVar[tuple[str, ...]]
    runtime_errors: tuple[type[Exception], ...]
    part: int | None = 0
    parts: int = 1
    watch: Watch | None = None
    _checkpoints: Checkpoints | None = None

    def __init__(self, config: ConfigDict):
        if config.strategy not in self.strategies:
            raise UsageError(
                f"config.strategy: expected {' or '.join(self.strategies)} with the backend "
                f"{keras.backend.backend()}. Received: {config.strategy!r}. "
                'KERAS_BACKEND="jax" or "tensorflow" in the environment chooses the backend.'
            )
        self.config = config
        self.step = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.part == 0

    def check_batch_sizes(self, devices: int) -> None:
        """Refuses batches that do not split evenly over `devices`, and micro-batches on each."""
        for name, parts in (("batch_size", self.config.accumulation_steps), ("eval_batch_size", 1)):
            if self.config[name] % (devices * parts):
                micro = f" and {parts} micro-batches" if parts > 1 else ""
                raise UsageError(
                    f"config.{name}={self.config[name]} does not split evenly over {devices} "
                    f"replicas{micro}: expected a multiple of {devices * parts}."
                )

    def build(
        self,
        make_model: Callable[[], keras.Model],
        make_optimizer: Callable[[keras.Model], keras.optimizers.Optimizer],
        make_objective: Callable[[keras.Model], Objective],
        prepare_images: PrepareImages,
    ) -> None:
        """Makes the model and its optimizer in their place and prepares the update.

        Args:
            make_model: returns the model with its first weights; the global seed is set before.
            make_optimizer: returns an optimizer of `keras_vit.optimizers`, not built.
            make_objective: returns what updates minimize.
            prepare_images: applied to the images of training.

        Raises:
            ValueError: if the model or the optimizer cannot be made, the model keeps running
                statistics, which no engine updates, or two weights have the same path.
        """
        with self._making():
            self.model = make_model()
            self.optimizer = make_optimizer(self.model)
            require_kind(self.optimizer, Optimizer, "a `keras_vit.optimizers.Optimizer`")
            objective = make_objective(self.model)
            self.optimizer.build([*self.model.trainable_variables, *objective.trained])
        parts = self.model, self.optimizer, objective, prepare_images
        self.update = update.Update(self.config, *parts, backend=self)
        self._compile()
        paths = [each.path for each in self.update.weights]
        if twice := [path for path in paths if paths.count(path) > 1]:
            raise ValueError(
                f"Expected every weight to have another path. Received two of {twice[0]}: give the "
                "layers names."
            )

    @abc.abstractmethod
    def _making(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the model and the optimizer are made."""

    @abc.abstractmethod
    def _compile(self) -> None:
        """Prepares what `_run` calls, and puts the state in its place."""

    def restore(self, directory: str | os.PathLike) -> dict[str, np.ndarray] | None:
        """Restores the newest readable state of a folder, to which `save` writes from now on.

        A damaged state is reported in the log, set aside under another name by the chief, and the
        one before it is used. Sets `step` to the step of the state. The folder need not exist.
        Returns the loop's state as given to `save`; None if there is no checkpoint. Raises
        `TrainingError` if there are states and none can be read, or it is of another model.
        """
        self._checkpoints = Checkpoints(
            directory, self.config.keep_checkpoints, self.part, self.parts
        )
        newest, failure = None, ""
        if self.is_chief:
            try:
                newest = self._checkpoints.newest()
            except TrainingError as error:
                failure = str(error)
        newest, failure = json.loads(self.gather(json.dumps([newest, failure]))[0])
        if failure:
            raise TrainingError(failure)
        # Without a shared folder there may be none, which the trainer finds.
        if newest not in checkpoints.steps(directory):
            return None
        stored, variables = checkpoints.read(directory, newest), self._variables()
        for name, variable in variables.items():
            if name not in stored or stored[name].shape != tuple(variable.shape):
                raise TrainingError(
                    f"The checkpoint of step {newest} in {directory} has no {name} of shape "
                    f"{tuple(variable.shape)}: it is of another model. Use another --workdir."
                )
        for name, variable in variables.items():
            self._assign(variable, stored[name].read)
        self.step = self._checkpoints.saved_step = newest
        return {
            name.removeprefix("loop/"): array.read()
            for name, array in stored.items()
            if name.startswith("loop/")
        }

    def save(self, loop_state: Mapping[str, Any], *, wait: bool = True) -> None:
        """Saves weights, optimizer and the loop's state of `step`, unless that step is saved.

        A state becomes visible only once it is completely written, so that a process that is
        killed leaves the one before. `config.keep_checkpoints` states are kept. `loop_state` has
        numbers and float64 arrays by name, kept bit for bit for `restore`. Without `wait` the state
        is written while training goes on; the next `save` and `close` wait for it. Raises
        `TrainingError` if a state cannot be written; earlier ones are untouched.
        """
        assert self._checkpoints

        def take():
            arrays = dict(zip(self._variables(), self._take(), strict=True))
            for name, value in loop_state.items():
                array = checkpoints.whole(np.array(value, np.float64))
                arrays[f"loop/{name}"] = array if self.is_chief else array._replace(pieces=[])
            return arrays

        self._checkpoints.save(self.step, take)
        if wait:
            self._checkpoints.wait()

    def _variables(self) -> dict[str, keras.Variable]:
        """Returns the variables of a state by their names in it."""
        return {
            **{each.path: each for each in self.update.weights},
            **{f"optimizer/{each.name}": each for each in self.optimizer.variables},
        }

    @abc.abstractmethod
    def _assign(self, variable: keras.Variable, read: Callable[[Any], np.ndarray]) -> None:
        """Gives a variable its value; `read` returns a slice of it, as `Shards.read`."""

    @abc.abstractmethod
    def _take(self) -> list[Shards]:
        """Returns copies of what this process writes of them."""

    @abc.abstractmethod
    def _distribute(self, make_dataset: MakeDataset) -> Any:
        """Returns the data set of this process."""

    def _batches(self, dataset: Any) -> Iterator[Any]:
        """Returns the batches of a data set of `_distribute` on the devices."""
        return iter(dataset)

    def make_batches(self, make_dataset: MakeDataset) -> Iterator[Any]:
        """Returns the input of `train`, an iterator of a kind that this engine takes.

        `make_dataset` is called for each input pipeline of this process; its first batch is that
        of update `step`.
        """
        return self._batches(self._distribute(make_dataset))

    def train(
        self, batches: Iterator[Any], count: int, *, save: bool = False, stop: bool = False
    ) -> Report:
        """Runs `count` updates, at least 1, on the next of `make_batches`; adds them to `step`.

        `save` and `stop` are requests of this process, of which the reports of all processes tell.
        """
        report = self._run(batches, count, np.array([save, stop], np.float32)).report(count)
        self.step += count
        return report

    @abc.abstractmethod
    def _run(self, batches: Iterator[Any], count: int, requests: np.ndarray) -> Totals:
        """Runs `count` updates; `requests` are of this process, to save and to stop."""

    @property
    def learning_rate(self) -> float:
        """The rate of the last update; of the first update before there is any."""
        iterations = self.optimizer.iterations
        last = ops.convert_to_tensor(max(self.step - 1, 0), iterations.dtype)
        with keras.StatelessScope([(iterations, last)]):
            return float(self.optimizer.learning_rate)

    def make_split_sums(
        self, batch_sums: update.BatchSums, make_dataset: MakeDataset, prepare_images: PrepareImages
    ) -> Callable[[], np.ndarray]:
        """Returns a function that sums over a whole split, for exact evaluation.

        The function returns the float64 sum of `batch_sums` over all batches of all processes,
        equal in each of them; a ValueError if there are none. It uses the current weights, or
        within `averaged_weights` the averages. `batch_sums`, written with `keras.ops`, is compiled
        and called with the model and a batch (or a device's part of it) of prepared images; it
        leaves out rows that only pad the last batch. Every process gets equally many batches.
        """

        def of_batch(batch):
            return batch_sums(self.model, update.prepared(batch, prepare_images))

        function, dataset = self._compile_sums(of_batch), self._distribute(make_dataset)

        def of_split():
            sums = [function(batch) for batch in self._batches(dataset)]
            if not sums:
                raise ValueError("Expected a split with examples. Received: none.")
            return np.sum([np.asarray(each, np.float64) for each in sums], axis=0)

        return of_split

    @abc.abstractmethod
    def _compile_sums(self, of_batch: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
        """Returns a function of a batch of all devices that sums what `of_batch` returns."""

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
    def profile(self, directory: str | os.PathLike) -> contextlib.AbstractContextManager:
        """Enters a context that records what the devices do, and writes it for TensorBoard."""

    @contextlib.contextmanager
    def translated_errors(self, explain: Callable[[], str] = str) -> Iterator[None]:
        """Enters a context that raises the failures of the backend's runtime as `TrainingError`.

        The message names the last step, the reason without the backend's stack of frames, a
        sentence that `explain` may return, and the last good checkpoint; where another process may
        be lost, it asks to start all of them again.
        """
        try:
            yield
        except self.runtime_errors as error:
            message = " ".join(filter(None, (f"{first_line(error, 300).rstrip('.')}.", explain())))
            what, next_step = "Training failed", ""
            if self.watch:
                time.sleep(SECONDS_TO_NAME_THE_LOST)
                what, next_step = "The workers lost contact", " Start all workers again."
            raise TrainingError(
                f"{what} after step {self.step}: {message} {self.last_good()}{next_step}"
            ) from error

    def close(self) -> None:
        """Waits for a state that is being written, then leaves the other processes in order.

        From now on they may end; the chief, on which they may depend, waits for them. Raises
        `TrainingError` if the state cannot be written.
        """
        try:
            if self._checkpoints:
                self._checkpoints.wait()
        finally:
            self._leave()

    @abc.abstractmethod
    def _leave(self) -> None:
        """Leaves the other processes."""

    def last_good(self) -> str:
        """Returns a sentence that names the state from which a new start would resume."""
        assert self._checkpoints
        return self._checkpoints.last_good()


def gather_text(text: str, gather: Callable[[np.ndarray], np.ndarray]) -> list[str]:
    """Returns the text of each process, given that of this one.

    `gather` returns the int32 numbers that each process passes it, equally many, as rows.
    """
    encoded = text.encode()
    lengths = gather(np.array([len(encoded)], np.int32))[:, 0]
    rows = gather(np.array([*encoded.ljust(max(1, lengths.max()), b"\0")], np.int32))
    return [bytes([*row][:length]).decode() for row, length in zip(rows, lengths, strict=True)]
