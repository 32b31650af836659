"""One update as a pure function of arrays, and many of them per call from the host."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import keras
from jax.sharding import Mesh

from keras_vit.typing import Tensor
from training.engines.frozen_weights import frozen_weights, is_seed
from training.engines.jax.forward import Forward
from training.engines.jax.mesh import batch_sharding, replicated, state_sharding

Batch = dict[str, jax.Array]


class State(NamedTuple):
    """What an update changes: arrays, or their layouts.

    Attributes:
        weights: the model's trainable variables.
        optimizer: the optimizer's variables: the number of updates, moments and averages.
    """

    weights: list[Tensor]
    optimizer: list[Tensor]


class Outcome(NamedTuple):
    """What the updates of one call left behind, scalars on the device.

    Attributes:
        loss, gradient_norm: float32 sums over the updates.
        bad_step: int32, the first update whose loss or gradient was not usable, or -1.
        requests: float32 (2,), how many devices belong to processes that asked for a checkpoint,
            and to stop.
    """

    loss: Tensor
    gradient_norm: Tensor
    bad_step: Tensor
    requests: Tensor


class TrainSteps:
    """Runs updates of a model on a mesh.

    Each update sums `loss / batch_size` over the whole batch, and clips and applies the sum of
    the gradients, so that any mesh computes what one device does. Masks are functions of (seed,
    step, position in the batch): the random numbers of a device are its part of those of the
    whole batch, without communication.

    Args:
        mesh: of `training.engines.jax.mesh.create_mesh`.
        model: `keras.Model`, images to logits.
        optimizer: of `training.recipes.optimizers`, built.
        loss: of `training.recipes.losses`.
        batch_size: examples per update, over all devices.
        seed: start of the masks.
        accumulation_steps: micro-batches per update. The examples of one are `accumulation_steps`
            apart, so that every device divides its own part of the batch.
        steps_per_call: largest number of updates of one call.
        loss_limit: largest loss that counts as usable.
    """

    def __init__(
        self,
        mesh: Mesh,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: keras.losses.Loss,
        *,
        batch_size: int,
        seed: int = 0,
        accumulation_steps: int = 1,
        steps_per_call: int = 1,
        loss_limit: float = 1e6,
    ):
        self.mesh = mesh
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.batch_size = batch_size
        self.seed = seed
        self.accumulation_steps = accumulation_steps
        self.steps_per_call = steps_per_call
        self.loss_limit = loss_limit
        self.shardings = State(
            [state_sharding(mesh, variable.shape) for variable in model.trainable_variables],
            [state_sharding(mesh, variable.shape) for variable in optimizer.variables],
        )
        self.frozen_shardings = [
            state_sharding(mesh, variable.shape) for variable in frozen_weights(model)
        ]
        self._forward = Forward(mesh, model)
        self.function = jax.jit(
            self.run,
            donate_argnums=0,
            out_shardings=(self.shardings, Outcome(*[replicated(mesh)] * 4)),
        )

    def masks(self, step: jax.Array, micro_batch: jax.Array | int) -> list[jax.Array]:
        """Returns the state of every seed generator of the model, (2,) each."""
        count = sum(map(is_seed, self.model.non_trainable_variables))
        if not count:
            return []
        key = jax.random.fold_in(jax.random.key(self.seed), step)
        bits = jax.random.bits(jax.random.fold_in(key, micro_batch), (count, 2), jnp.uint32)
        return list(bits)

    def gradients(
        self,
        weights: Sequence[jax.Array],
        frozen: Sequence[jax.Array],
        step: jax.Array,
        batch: Batch,
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Returns the loss of a batch, a float32 scalar, and its gradients, laid out as weights."""

        def loss_of(weights, images, labels, seeds):
            logits = self._forward(weights, frozen, seeds, images, training=True)
            return jnp.sum(self.loss.call(labels, logits)) / self.batch_size

        def part(micro_batch, images, labels):
            loss, gradients = jax.value_and_grad(loss_of)(
                weights, images, labels, self.masks(step, micro_batch)
            )
            return loss, jax.lax.with_sharding_constraint(gradients, self.shardings.weights)

        if self.accumulation_steps == 1:
            return part(0, batch["image"], batch["label"])

        def accumulate(micro_batch, sums):
            images, labels = (
                jax.lax.with_sharding_constraint(
                    jax.lax.dynamic_index_in_dim(
                        array.reshape(-1, self.accumulation_steps, *array.shape[1:]),
                        micro_batch,
                        axis=1,
                        keepdims=False,
                    ),
                    batch_sharding(self.mesh),
                )
                for array in (batch["image"], batch["label"])
            )
            return jax.tree.map(jnp.add, sums, part(micro_batch, images, labels))

        zeros = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), list(weights))
        zeros = jax.lax.with_sharding_constraint(zeros, self.shardings.weights)
        return jax.lax.fori_loop(0, self.accumulation_steps, accumulate, (jnp.float32(0), zeros))

    def update(
        self, state: State, frozen: Sequence[jax.Array], batch: Batch
    ) -> tuple[State, jax.Array, jax.Array, jax.Array]:
        """Returns the state after one update, its number, the loss and the gradients' norm."""
        weights, optimizer = self.model.trainable_variables, self.optimizer
        mapping = [
            *zip(weights, state.weights, strict=True),
            *zip(optimizer.variables, state.optimizer, strict=True),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            step = optimizer.iterations.value
            loss, gradients = self.gradients(state.weights, frozen, step, batch)
            norm = optimizer.apply_reduced(gradients)
        after = State(
            [scope.get_current_value(variable) for variable in weights],
            [scope.get_current_value(variable) for variable in optimizer.variables],
        )
        return jax.lax.with_sharding_constraint(after, self.shardings), step, loss, norm

    def run(
        self,
        state: State,
        frozen: Sequence[jax.Array],
        batches: tuple[Batch, ...],
        count: jax.Array,
        requests: jax.Array,
    ) -> tuple[State, Outcome]:
        """Runs the first `count` of `steps_per_call` batches; compiled as `function`.

        Args:
            state: donated.
            frozen: the weights that do not train, laid out as `frozen_shardings`.
            batches: `steps_per_call` batches `{"image", "label"}`.
            count: int32 scalar; one program serves every count, with the same numbers.
            requests: float32 (devices, 2), a row per device: its process asks for a checkpoint,
                to stop.
        """

        def body(index, carry):
            state, loss_sum, norm_sum, bad_step = carry
            batch = {
                key: jax.lax.dynamic_index_in_dim(array, index, keepdims=False)
                for key, array in stacked.items()
            }
            state, step, loss, norm = self.update(state, frozen, batch)
            usable = (loss < self.loss_limit) & jnp.isfinite(norm)
            bad_step = jnp.where(usable | (bad_step >= 0), bad_step, step.astype(jnp.int32))
            return state, loss_sum + loss, norm_sum + norm, bad_step

        stacked = {key: jnp.stack([batch[key] for batch in batches]) for key in batches[0]}
        start = (state, jnp.float32(0), jnp.float32(0), jnp.int32(-1))
        state, loss, norm, bad_step = jax.lax.fori_loop(0, count, body, start)
        return state, Outcome(loss, norm, bad_step, jnp.sum(requests, axis=0))
