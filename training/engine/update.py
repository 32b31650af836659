"""One update: its arithmetic, the same on every backend."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import keras
from keras import ops
from ml_collections import ConfigDict

from keras_vit.type_hints import Tensor

# {"image": (examples, height, width, channels), "label": (examples, classes), …}
Batch = Mapping[str, Tensor]

# Applied to the images of a batch on the device, before the model.
PrepareImages = Callable[[Tensor], Tensor]

# (model, batch of prepared images) -> float32 vector, the sums of something over the examples.
BatchSums = Callable[[keras.Model, Batch], Tensor]


class Objective(NamedTuple):
    """The quantity that updates minimize.

    `losses` may read `variables` beside the model's, such as a teacher's weights, which are placed
    like the model's, do not train, and stand in no checkpoint. Those of `trained` train with the
    model's and stand in checkpoints.
    """

    # (model, batch of prepared images) -> (examples,) float32, in training.
    losses: Callable[[keras.Model, Batch], Tensor]
    variables: Sequence[keras.Variable] = ()
    trained: Sequence[keras.Variable] = ()


class Report(NamedTuple):
    """The report of a call of several updates; equal in every process."""

    loss: float  # mean over the updates of the call, as the next
    gradient_norm: float
    save: bool  # whether any process asked for a checkpoint
    stop: bool  # whether any process asked to stop
    bad_step: int  # the first update whose loss or gradient was not usable, or -1


class Totals(NamedTuple):
    """The report while the updates of a call run: arrays on the devices."""

    sums: Tensor  # float32 (4,): losses, gradient norms, requests to save and to stop
    bad_step: Tensor  # integer, as in `Report`

    def report(self, count: int) -> Report:
        """Returns the report on `count` updates."""
        loss, norm, save, stop = ops.convert_to_numpy(self.sums).tolist()
        return Report(loss / count, norm / count, save > 0, stop > 0, int(self.bad_step))


class Differentiation(Protocol):
    """The operations of a backend that an update calls."""

    @abc.abstractmethod
    def micro_batch(self, array: Tensor, index: Tensor) -> Tensor:
        """Returns micro-batch `index` of one of this device's arrays."""

    @abc.abstractmethod
    def differentiate(
        self, loss: Callable[[], Tensor], states: Sequence[Tensor], replica: Tensor, index: Tensor
    ) -> list[Tensor]:
        """Returns the value of `loss` and its gradient by every variable of `Update.trained`.

        Args:
            loss: of a micro-batch; reads the model's variables.
            states: of the seed generators, for the whole batch.
            replica, index: numbers of the replica and of its micro-batch.
        """

    def sum_over_replicas(self, arrays: list[Tensor]) -> list[Tensor]:
        """Returns the sums of the replicas' arrays, where there are several replicas."""
        return arrays


@dataclasses.dataclass(eq=False)
class Update:
    """An update: the losses of a batch are averaged, differentiated, clipped, applied.

    The gradients of all devices and micro-batches are summed before they are clipped, so that any
    number of them computes what one does. Dropout is a function of (seed, update, position in the
    batch).
    """

    config: ConfigDict  # complete
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    objective: Objective
    prepare_images: PrepareImages
    backend: Differentiation

    def __post_init__(self) -> None:
        # Weights that train stand first; generators are the states of seed generators.
        self.trained = [*self.model.trainable_variables, *self.objective.trained]
        self.weights = [*self.trained, *_frozen_weights(self.model)]
        self.generators = [*filter(is_seed, self.model.non_trainable_variables)]

    def share(self, batch: Batch, number: Tensor, replica: Tensor) -> list[Tensor]:
        """Returns this replica's share of the loss and of its gradients, summed over micro-batches.

        `batch` is this replica's, `number` the update's and `replica` the replica's, int scalars.
        """
        count = self.config.accumulation_steps
        states = generator_states(self.config.seed, number, len(self.generators))

        def of_micro_batch(index):
            part = batch
            if count > 1:
                part = {key: self.backend.micro_batch(each, index) for key, each in batch.items()}

            def loss():
                losses = self.objective.losses(self.model, prepared(part, self.prepare_images))
                if len(losses.shape) != 1:
                    expected = "Expected losses of shape (batch,), one for each image"
                    raise ValueError(f"{expected}. Received: shape {tuple(losses.shape)}.")
                return ops.sum(losses) / self.config.batch_size

            return self.backend.differentiate(loss, states, replica, index)

        if count == 1:
            return of_micro_batch(0)
        zeros = [ops.zeros(each.shape, each.dtype) for each in self.trained]

        def add(index, sums):
            return [a + b for a, b in zip(sums, of_micro_batch(index), strict=True)]

        return ops.fori_loop(0, count, add, [ops.zeros((), "float32"), *zeros])

    def apply(self, share: Sequence[Tensor], requests: Tensor, totals: Totals) -> Totals:
        """Changes weights and optimizer by the shares of all replicas; returns the totals then.

        `share` and `requests`, float32 (2,) to save and to stop, are this replica's; `totals` are
        those of the call so far.
        """
        number = ops.cast(self.optimizer.iterations, totals.bad_step.dtype)
        loss, *gradients = share
        told = ops.concatenate([ops.reshape(loss, (1,)), requests])
        told, *gradients = self.backend.sum_over_replicas([told, *gradients])
        norm = self.optimizer.apply_reduced(gradients)
        usable = ops.logical_and(told[0] < self.config.loss_limit, ops.isfinite(norm))
        known = ops.logical_or(usable, totals.bad_step >= 0)
        return Totals(
            totals.sums + ops.concatenate([told[:1], ops.reshape(norm, (1,)), told[1:]]),
            ops.where(known, totals.bad_step, number),
        )


def prepared(batch: Batch, prepare_images: PrepareImages) -> dict[str, Tensor]:
    """Returns a batch whose images are prepared."""
    return {**batch, "image": prepare_images(batch["image"])}


def generator_states(seed: int, update: Tensor, count: int) -> list[Tensor]:
    """Returns the states of `count` seed generators for an update, uint32 (2,) each.

    They are hashes of (seed, update, generator), the same on every backend.
    """
    states = _hash(ops.cast(ops.arange(2 * count), "uint32"))
    for word in (ops.cast(update, "uint32"), seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF):
        states = _hash(ops.bitwise_xor(states, ops.cast(word, "uint32")))
    return ops.unstack(ops.reshape(states, (count, 2)))


def _hash(words):
    """A bijection of 32 bits: https://github.com/skeeto/hash-prospector."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97), (15, 1)):
        shifted = ops.right_shift(words, ops.cast(shift, "uint32"))
        words = ops.bitwise_xor(words, shifted) * ops.cast(factor, "uint32")
    return words


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a seed generator."""
    return variable.name == "seed_generator_state"


def _frozen_weights(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights that do not train, in the order of `model.non_trainable_variables`."""
    trained_once = {
        id(variable) for layer in model._flatten_layers() for variable in layer._trainable_variables
    }
    frozen = [variable for variable in model.non_trainable_variables if not is_seed(variable)]
    if others := [each.path for each in frozen if id(each) not in trained_once]:
        raise ValueError(
            "The trainer updates trainable variables only; expected a model without running "
            f"statistics. Received non-trainable variables: {', '.join(others)}."
        )
    return frozen
