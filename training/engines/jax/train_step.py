"""One update as a pure function of arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import keras
from jax.sharding import Mesh

from keras_vit.backends.jax.batch_part import part_of_batch
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
    """What the updates of one call leave behind, on the devices.

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
        loss_limit: float = 1e6,
    ):
        self.mesh = mesh
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.batch_size = batch_size
        self.seed = seed
        self.accumulation_steps = accumulation_steps
        self.loss_limit = loss_limit
        self.shardings = State(
            [state_sharding(mesh, variable.shape) for variable in model.trainable_variables],
            [state_sharding(mesh, variable.shape) for variable in optimizer.variables],
        )
        self.frozen_shardings = [
            state_sharding(mesh, variable.shape) for variable in frozen_weights(model)
        ]
        self._forward = Forward(mesh, model)
        outcome = Outcome(*[replicated(mesh)] * 4)
        self.begin = jax.jit(begin, out_shardings=outcome)
        self.function = jax.jit(self.run, donate_argnums=0, out_shardings=(self.shardings, outcome))

    def masks(self, step: jax.Array) -> list[jax.Array]:
        """Returns the state of every seed generator of the model, (2,) each."""
        count = sum(map(is_seed, self.model.non_trainable_variables))
        if not count:
            return []
        key = jax.random.fold_in(jax.random.key(self.seed), step)
        bits = jax.random.bits(key, (count, 2), jnp.uint32)
        return list(bits)

    def gradients(
        self,
        weights: Sequence[jax.Array],
        frozen: Sequence[jax.Array],
        step: jax.Array,
        batch: Batch,
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Returns the loss of a batch, a float32 scalar, and its gradients, laid out as weights."""

        seeds = self.masks(step)

        def loss_of(weights, images, labels, micro_batch):
            with part_of_batch(micro_batch, self.accumulation_steps):
                logits = self._forward(weights, frozen, seeds, images, training=True)
            return jnp.sum(self.loss.call(labels, logits)) / self.batch_size

        def part(micro_batch, images, labels):
            loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels, micro_batch)
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
        self, state: State, frozen: Sequence[jax.Array], batch: Batch, outcome: Outcome
    ) -> tuple[State, Outcome]:
        """One update of a call; compiled as `function`.

        A loop over several in one program would take more memory, and move more.

        Args:
            state: donated.
            frozen: the weights that do not train, laid out as `frozen_shardings`.
            batch: `{"image", "label"}`.
            outcome: of the call so far, of `begin` at first.
        """
        state, step, loss, norm = self.update(state, frozen, batch)
        usable = (loss < self.loss_limit) & jnp.isfinite(norm)
        known = usable | (outcome.bad_step >= 0)
        return state, Outcome(
            outcome.loss + loss,
            outcome.gradient_norm + norm,
            jnp.where(known, outcome.bad_step, step.astype(jnp.int32)),
            outcome.requests,
        )


def begin(requests: jax.Array) -> Outcome:
    """Returns the outcome of a call before its first update.

    Args:
        requests: float32 (devices, 2), a row per device: its process asks for a checkpoint, to
            stop.
    """
    return Outcome(jnp.float32(0), jnp.float32(0), jnp.int32(-1), jnp.sum(requests, axis=0))
