"""The engine of Keras's JAX backend: updates on a mesh of devices."""

import collections
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from ml_collections import ConfigDict

from training.engines.base import (
    MASKS,
    BatchSums,
    Engine,
    MakeDataset,
    Numbers,
    PrepareImages,
    Report,
)
from training.engines.frozen_weights import frozen_weights
from training.engines.jax import processes, tensorflow_states
from training.engines.jax.batches import DeviceBatches, to_devices
from training.engines.jax.evaluation_sums import SplitSums
from training.engines.jax.mesh import batch_sharding, create_mesh, replicated
from training.engines.jax.train_step import State, TrainSteps
from training.engines.jax.training_checkpoints import Checkpoints
from training.errors import Disagreement, Diverged, Interrupted, TrainingError, UsageError

# Updates that the host may be ahead of the devices, and batches that wait there.
_AHEAD = 2


class JaxEngine(Engine):
    """See `Engine`. Weights, moments and averages are arrays on the mesh, laid out by it.

    Attributes:
        mesh: all devices of all processes (`"sharded"`), or one device (`"one"`).
        optimizer: whose variables name and describe the arrays, from `build` on.
    """

    strategies = ("one", "sharded")
    writes_in_parts = True

    def __init__(self, config: ConfigDict):
        super().__init__(config)
        _keep_tensorflow_off_accelerators()
        self._job = processes.join(config) if config.strategy == "sharded" else None
        self.watch = self._job.watch if self._job else None
        if config.strategy == "sharded":
            self.mesh = create_mesh(config.mesh.data, config.mesh.fsdp)
        else:
            self.mesh = create_mesh(1, 1, jax.local_devices()[:1])
        self.is_chief = jax.process_index() == 0
        self.num_input_pipelines = jax.process_count()
        self.input_pipeline_id = jax.process_index()
        self.check_batch_sizes(self.mesh.size)

    def build(
        self,
        make_model: Callable[[], keras.Model],
        make_optimizer: Callable[[keras.Model], keras.optimizers.Optimizer],
        loss: keras.losses.Loss,
        prepare_images: PrepareImages | None = None,
    ) -> None:
        config = self.config
        # On the host: the memory of a device holds its share of the state, no whole ones.
        with jax.default_device(_host()):
            self.model = make_model()
            self.optimizer = make_optimizer(self.model)
            self.optimizer.build(self.model.trainable_variables)
        self._steps = TrainSteps(
            self.mesh,
            self.model,
            self.optimizer,
            loss,
            batch_size=config.batch_size,
            seed=config.seed,
            accumulation_steps=config.accumulation_steps,
            loss_limit=config.loss_limit,
        )
        self._prepare_images = prepare_images
        self._averaging = False
        self._whole = jax.jit(lambda arrays: arrays, out_shardings=replicated(self.mesh))
        self._place(
            [variable.value for variable in self.model.trainable_variables],
            [variable.value for variable in self._frozen_variables],
            [variable.value for variable in self.optimizer.variables],
        )

    @property
    def _frozen_variables(self) -> list[keras.Variable]:
        return frozen_weights(self.model)

    def _place(self, weights: Sequence, frozen: Sequence, optimizer: Sequence) -> None:
        def place(array, sharding):
            array = np.asarray(array)
            return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

        steps = self._steps
        self._state = jax.tree.map(place, State(list(weights), list(optimizer)), steps.shardings)
        self._frozen = jax.tree.map(place, list(frozen), steps.frozen_shardings)

    def _restore(self, directory: str | os.PathLike) -> dict[str, np.ndarray] | None:
        self._checkpoints = Checkpoints(directory, self.config.keep_checkpoints, self.is_chief)
        step, failure = None, None
        try:
            step = self._checkpoints.newest()
        except TrainingError as error:
            failure = error
        if other := tensorflow_states.read_newer(directory, step, chief=self.is_chief):
            self._place(other.weights, other.frozen, other.optimizer)
            self.step = self.saved_step = other.step
            return other.numbers
        if failure:
            raise failure
        if step is None:
            return None
        named = self._named_arrays()
        target = jax.tree.map(
            lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding),
            named,
        )
        arrays = self._checkpoints.restore(step, target)
        # JAX sorts the keys of dicts.
        weights, optimizer = (
            [arrays[part][name] for name in named[part]] for part in ("weights", "optimizer")
        )
        trained = len(self._state.weights)
        self._state = State(weights[:trained], optimizer)
        self._frozen = weights[trained:]
        self.step = self.saved_step = self._checkpoints.saved_step = step
        if MASKS not in arrays["numbers"]:
            self._tell_of_other_masks()
        return arrays["numbers"]

    def _named_arrays(self) -> dict[str, dict[str, Any]]:
        weights = self.model.trainable_variables + self._frozen_variables
        values = self._state.weights + self._frozen
        names = [variable.name for variable in self.optimizer.variables]
        return {
            "weights": {w.path: value for w, value in zip(weights, values, strict=True)},
            "optimizer": dict(zip(names, self._state.optimizer, strict=True)),
        }

    def save(self, numbers: Numbers, *, wait: bool = True) -> None:
        arrays = {
            **self._named_arrays(),
            "numbers": {k: np.array(v) for k, v in {**numbers, MASKS: np.ones(())}.items()},
        }
        self._checkpoints.save(self.step, arrays)
        if wait:
            self._checkpoints.wait()
        self.saved_step = self._checkpoints.saved_step

    def make_batches(self, make_dataset: MakeDataset) -> DeviceBatches:
        dataset = self._prepared(make_dataset, self._prepare_images)
        return DeviceBatches(dataset, batch_sharding(self.mesh), _AHEAD)

    def _prepared(self, make_dataset, prepare_images):
        dataset = make_dataset(self.num_input_pipelines, self.input_pipeline_id)
        if prepare_images is None:
            return dataset
        # The operations are TensorFlow's: here they run on the host.
        return dataset.map(lambda batch: {**batch, "image": prepare_images(batch["image"])})

    def train(self, batches: Any, count: int, *, save: bool = False, stop: bool = False) -> Report:
        asked = np.tile(np.array([save, stop], np.float32), (self.mesh.local_mesh.size, 1))
        requests = to_devices({"requests": asked}, batch_sharding(self.mesh))["requests"]
        outcomes = collections.deque([self._steps.begin(requests)], maxlen=_AHEAD)
        for _ in range(count):
            batch = next(batches)
            jax.block_until_ready(outcomes[0])
            self._state, outcome = self._steps.function(
                self._state, self._frozen, batch, outcomes[-1]
            )
            outcomes.append(outcome)
            # Devices compute already; what they need next is on its way meanwhile.
            batches.fill()
        save_requests, stop_requests = np.asarray(outcome.requests).tolist()
        report = Report(
            float(outcome.loss) / count,
            float(outcome.gradient_norm) / count,
            save_requests > 0,
            stop_requests > 0,
            int(outcome.bad_step),
        )
        self.step += count
        return report

    @property
    def learning_rate(self) -> float:
        iterations = self.optimizer.iterations
        with keras.StatelessScope([(iterations, jnp.asarray(self.step, iterations.dtype))]):
            return float(self.optimizer.learning_rate)

    def make_split_sums(
        self,
        batch_sums: BatchSums,
        make_dataset: MakeDataset,
        prepare_images: PrepareImages | None = None,
    ) -> Callable[[], np.ndarray]:
        sums = SplitSums(
            self.mesh, self.model, batch_sums, self._prepared(make_dataset, prepare_images)
        )
        return lambda: sums(self._weights(self._averaging), self._frozen)

    def _weights(self, averaged: bool) -> list[jax.Array]:
        """Returns the weights of the last update, or their averages if there are any."""
        if not averaged or not self.optimizer.use_ema:
            return self._state.weights
        arrays = {
            id(variable): array
            for variable, array in zip(self.optimizer.variables, self._state.optimizer, strict=True)
        }
        return [arrays[id(each)] for each in self.optimizer._model_variables_moving_average]

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[keras.Model]:
        variables = self.model.trainable_variables + self._frozen_variables
        before = [variable.value for variable in variables]
        arrays = self._whole([*self._weights(True), *self._frozen])
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array.addressable_data(0))
        self._averaging = True
        try:
            yield self.model
        finally:
            self._averaging = False
            for variable, array in zip(variables, before, strict=True):
                variable.assign(array)

    def gather(self, text: str) -> list[str]:
        return processes.gather(text)

    def start_profile(self, directory: str | os.PathLike) -> None:
        jax.profiler.start_trace(str(directory))

    def stop_profile(self) -> None:
        jax.profiler.stop_trace()

    def runtime_errors(self) -> tuple[type[Exception], ...]:
        tensorflow = sys.modules.get("tensorflow")
        of_input = (tensorflow.errors.OpError,) if tensorflow else ()
        return (jax.errors.JaxRuntimeError, *of_input)

    def close(self) -> None:
        try:
            if hasattr(self, "_checkpoints"):
                self._checkpoints.wait()
                self.saved_step = self._checkpoints.saved_step
        finally:
            if self._job:
                # These end every process at the same step.
                error = sys.exc_info()[1]
                together = isinstance(error, Diverged | Interrupted | Disagreement)
                self._job.leave(error is None or together)


def _host():
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise UsageError(
            "The JAX engine makes weights on the host, which JAX_PLATFORMS="
            f"{os.environ.get('JAX_PLATFORMS')} hides: add ',cpu' to it."
        ) from error


def _keep_tensorflow_off_accelerators():
    """Leaves the memory of accelerators to JAX: TensorFlow only reads the input."""
    import tensorflow as tf

    for kind in ("GPU", "TPU"):
        # TensorFlow that computes already has what it has taken.
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.set_visible_devices([], kind)
