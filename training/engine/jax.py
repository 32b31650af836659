"""The engine of Keras's JAX backend: updates on a mesh of all devices of all processes."""

import collections
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import NamedSharding
from ml_collections import ConfigDict

from keras_vit.backends.jax import part_of_batch
from keras_vit.type_hints import Tensor

from ..errors import Disagreement, Diverged, Interrupted, UsageError
from . import jax_processes
from .checkpoints import Shards
from .engine_interface import Engine, MakeDataset
from .jax_mesh import (
    ActivationLayout,
    batch_sharding,
    create_mesh,
    gather_on,
    replicated,
    state_sharding,
)
from .update import Totals, is_seed

# Updates that the host may be ahead of the devices, and batches that wait there.
_AHEAD = 2

Batch = dict[str, jax.Array]


class _WholeWeights(keras.StatelessScope):
    """Gives variables their values for a call, and weights whole."""

    def __init__(self, values, gather):
        super().__init__(values)
        self._gather = gather

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        return value if value is None or is_seed(variable) else self._gather(value)


class DeviceBatches(Iterator[Batch]):
    """Batches on the devices, some of them sent before they are asked for.

    `dataset`, a `tf.data.Dataset`, has this process's parts of the batches, dicts of arrays;
    `sharding` is of a global batch.
    """

    def __init__(self, dataset: Any, sharding: NamedSharding):
        self._host = dataset.as_numpy_iterator()
        self._to_devices = functools.partial(jax.make_array_from_process_local_data, sharding)
        self._sent: collections.deque[Batch] = collections.deque()
        self._failure: Exception | None = None

    def fill(self) -> None:
        """Sends batches, until `_AHEAD` of them wait there.

        What goes wrong with one is raised where it is asked for, which it may never be.
        """
        try:
            while not self._failure and len(self._sent) < _AHEAD:
                self._sent.append(jax.tree.map(self._to_devices, next(self._host)))
        except Exception as error:
            self._failure = error

    def __next__(self) -> Batch:
        if not self._sent:
            self.fill()
        if self._sent:
            return self._sent.popleft()
        assert self._failure
        raise self._failure


class JaxEngine(Engine):
    """See `Engine`. Weights, moments and averages are arrays on the mesh, laid out by it.

    A device draws the random numbers of its part of the global batch, without
    communication. The examples of a micro-batch are `accumulation_steps` apart, so that every
    device divides its own part of the batch.

    Attributes:
        mesh: all devices of all processes (`"sharded"`), or one device (`"one"`).
        trained, fixed: the variables that updates change, and the rest.
        function: one update, compiled.
    """

    strategies = ("one", "sharded")
    watch: jax_processes.Job | None

    def __init__(self, config: ConfigDict):
        super().__init__(config)
        import tensorflow as tf  # which reads the input; compiling a step needs none

        self.runtime_errors = (jax.errors.JaxRuntimeError, tf.errors.OpError)
        for kind in ("GPU", "TPU"):
            # Their memory is JAX's: TensorFlow reads the input, and may have computed already.
            with contextlib.suppress(RuntimeError, ValueError):
                tf.config.set_visible_devices([], kind)
        if config.strategy == "sharded":
            self.watch = jax_processes.join(config)
            self.mesh = create_mesh(config.mesh.data, config.mesh.fsdp)
        else:
            self.mesh = create_mesh(1, 1, jax.local_devices()[:1])
        self.part, self.parts = jax.process_index(), jax.process_count()
        self._evaluated: list[jax.Array] = []
        self.check_batch_sizes(self.mesh.size)

    def _making(self) -> contextlib.AbstractContextManager:
        # On the host: the memory of a device holds its share of the state, no whole ones.
        try:
            host = jax.local_devices(backend="cpu")[0]
        except RuntimeError as error:
            raise UsageError(
                "The JAX engine makes weights on the host, which JAX_PLATFORMS="
                f"{os.environ.get('JAX_PLATFORMS')} hides: add ',cpu' to it."
            ) from error
        return jax.default_device(host)

    def _compile(self) -> None:
        count, weights = len(self.update.trained), self.update.weights
        self.trained = [*weights[:count], *self.optimizer.variables]
        self.fixed = [*weights[count:], *self.update.objective.variables]
        self._layout, self._gather = ActivationLayout(self.mesh), gather_on(self.mesh)
        whole = replicated(self.mesh)
        shardings = [state_sharding(self.mesh, each.shape) for each in self.trained]
        self._of_weights = shardings[:count]
        # Summed over the devices, these tell whether any process asked.
        self._begin = jax.jit(
            lambda requests: (jnp.sum(requests, axis=0), Totals(jnp.zeros(4), jnp.int32(-1))),
            out_shardings=whole,
        )
        self.function = jax.jit(
            self._update_arrays, donate_argnums=0, out_shardings=(shardings, Totals(whole, whole))
        )
        self._whole = jax.jit(lambda arrays: arrays, out_shardings=whole)
        self._place()

    def _place(self):
        """Lays out the state, which was made on the host."""
        for variable in (*self.trained, *self.fixed):
            self._assign(variable, np.asarray(variable.value).__getitem__)

    @contextlib.contextmanager
    def _whole_weights(self, values: Sequence[tuple[keras.Variable, Tensor]]) -> Iterator[None]:
        """Enters a context in which the model computes with these arrays of its variables.

        Each weight is made whole where a layer reads it, in a block that recomputes its
        activations too. Whether it is then gathered twice or kept is the compiler's choice.
        """
        before = keras.distribution.distribution()
        keras.distribution.set_distribution(self._layout)
        try:
            with _WholeWeights(values, self._gather):
                yield
        finally:
            keras.distribution.set_distribution(before)

    def micro_batch(self, array: Tensor, index: Tensor) -> Tensor:
        array = array.reshape(-1, self.config.accumulation_steps, *array.shape[1:])
        part = jax.lax.dynamic_index_in_dim(array, index, axis=1, keepdims=False)
        return jax.lax.with_sharding_constraint(part, batch_sharding(self.mesh))

    def differentiate(
        self, loss: Callable[[], Tensor], states: Sequence[Tensor], replica: Tensor, index: Tensor
    ) -> list[Tensor]:
        variables = self.update.trained
        others = [(variable, variable.value) for variable in self.fixed]
        others += zip(self.update.generators, states, strict=True)

        def of_weights(weights):
            values = [*zip(variables, weights, strict=True), *others]
            with part_of_batch(index, self.config.accumulation_steps), self._whole_weights(values):
                return loss()

        value, gradients = jax.value_and_grad(of_weights)([each.value for each in variables])
        return [value, *jax.lax.with_sharding_constraint(gradients, self._of_weights)]

    def _update_arrays(self, state, frozen, batch, requests, totals):
        """One update as a function of arrays, of `trained` (donated) and of `fixed`.

        A loop over several in one program would take more memory, and move more.
        """
        values = [*zip(self.trained, state, strict=True), *zip(self.fixed, frozen, strict=True)]
        with keras.StatelessScope(state_mapping=values) as scope:
            share = self.update.share(batch, self.optimizer.iterations, 0)
            totals = self.update.apply(share, requests, totals)
        return [scope.get_current_value(variable) for variable in self.trained], totals

    def _run(self, batches: Any, count: int, requests: np.ndarray) -> Totals:
        asked = np.tile(requests, (self.mesh.local_mesh.size, 1))
        asked = jax.make_array_from_process_local_data(batch_sharding(self.mesh), asked)
        requests, totals = self._begin(asked)
        running = collections.deque([totals], maxlen=_AHEAD)
        state, frozen = ([each.value for each in group] for group in (self.trained, self.fixed))
        for _ in range(count):
            batch = next(batches)
            jax.block_until_ready(running[0])
            state, totals = self.function(state, frozen, batch, requests, running[-1])
            running.append(totals)
            # Devices compute already; what they need next is on its way meanwhile.
            batches.fill()
        for variable, array in zip(self.trained, state, strict=True):
            variable.assign(array)
        return totals

    def _assign(self, variable: keras.Variable, read: Callable[[Any], np.ndarray]) -> None:
        shape, sharding = tuple(variable.shape), state_sharding(self.mesh, variable.shape)
        values = jax.make_array_from_callback(
            shape, sharding, lambda index: np.asarray(read(index), variable.dtype)
        )
        variable.assign(values)

    def _take(self) -> list[Shards]:
        arrays = [each.value for each in self._variables().values()]
        for array in arrays:
            array.copy_to_host_async()
        return [_shards(array) for array in arrays]

    def _distribute(self, make_dataset: MakeDataset) -> Any:
        return make_dataset(self.parts, jax.process_index())

    def _batches(self, dataset: Any) -> DeviceBatches:
        return DeviceBatches(dataset, batch_sharding(self.mesh))

    def _compile_sums(self, of_batch: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
        # Without dropout any state of the generators will do.
        seeds = [(each, np.asarray(each.value)) for each in self.update.generators]
        variables = [*self.update.weights, *self.update.objective.variables]

        def of_arrays(weights, batch):
            with self._whole_weights([*zip(variables, weights, strict=True), *seeds]):
                return of_batch(batch)

        function = jax.jit(of_arrays, out_shardings=replicated(self.mesh))

        def of_batches(batch):
            values = [each.value for each in variables]
            return function(self._evaluated + values[len(self._evaluated) :], batch)

        return of_batches

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[keras.Model]:
        variables = self.update.weights
        before = [variable.value for variable in variables]
        averages = [variable.value for variable in self.optimizer.averages]
        # Evaluation reads the sharded arrays.
        self._evaluated = averages + before[len(averages) :]
        arrays = self._whole(self._evaluated)
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array.addressable_data(0))
        try:
            yield self.model
        finally:
            self._evaluated = []
            for variable, array in zip(variables, before, strict=True):
                variable.assign(array)

    def gather(self, text: str) -> list[str]:
        return jax_processes.gather(text)

    def profile(self, directory: str | os.PathLike) -> contextlib.AbstractContextManager:
        return jax.profiler.trace(str(directory))

    def _leave(self) -> None:
        if self.watch:
            # These end every process at the same step.
            error = sys.exc_info()[1]
            together = isinstance(error, Diverged | Interrupted | Disagreement)
            self.watch.leave(error is None or together)


def _shards(array):
    """Returns copies of the pieces of an array of which this process has the first copy."""
    pieces = [
        (tuple(each.start or 0 for each in shard.index), np.array(shard.data))
        for shard in array.addressable_shards
        if shard.replica_id == 0
    ]
    return Shards(array.shape, np.dtype(array.dtype), pieces)


def compiled(model: keras.Model) -> Callable[[Tensor], jax.Array]:
    """Returns a function from images to what the model returns with its weights of the moment."""
    infer = jax.jit(lambda *state: model.stateless_call(*state, training=False)[0])

    def call(images):
        variables = model.trainable_variables, model.non_trainable_variables
        return infer(*([one.value for one in each] for each in variables), np.asarray(images))

    return call
