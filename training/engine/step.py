"""The arithmetic of an update, the same on every backend."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import keras
from keras import ops
from ml_collections import ConfigDict

from keras_vit.type_hints import Tensor

# Applied to a batch of images on the device, before the model.
PrepareImages = Callable[[Tensor], Tensor]

# (float32 logits, batch) -> float32 vector, the sum of something over the batch's examples.
BatchSums = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


class Report(NamedTuple):
    """The report of a call of several updates; equal in every process.

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


class Totals(NamedTuple):
    """The report while the updates of a call run: arrays on the devices.

    Attributes:
        sums: float32 (4,), of losses, gradient norms and requests to save and to stop.
        bad_step: integer, as in `Report`.
    """

    sums: Tensor
    bad_step: Tensor

    def report(self, count: int) -> Report:
        """Returns the report on `count` updates."""
        loss, norm, save, stop = ops.convert_to_numpy(self.sums).tolist()
        return Report(loss / count, norm / count, save > 0, stop > 0, int(self.bad_step))


class StepMixin(abc.ABC):
    """The update of an engine: `loss / batch_size` summed over a batch, clipped, applied.

    The gradients of all devices and micro-batches are summed before they are clipped, so that any
    number of them computes what one does. Dropout is a function of (seed, update, position in the
    batch).

    Attributes:
        weights: variables of the model, those that train first.
        generators: states of its seed generators.
    """

    config: ConfigDict
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    loss: keras.losses.Loss
    prepare_images: PrepareImages
    weights: list[keras.Variable]
    generators: list[keras.Variable]

    def _find_variables(self) -> None:
        variables = self.model.non_trainable_variables
        self.weights = [*self.model.trainable_variables, *_frozen_weights(self.model)]
        self.generators = [variable for variable in variables if is_seed(variable)]

    @abc.abstractmethod
    def micro_batch(self, array: Tensor, index: Tensor) -> Tensor:
        """Returns micro-batch `index` of one of this device's arrays."""

    @abc.abstractmethod
    def differentiate(
        self, loss: Callable[[], Tensor], states: Sequence[Tensor], replica: Tensor, index: Tensor
    ) -> list[Tensor]:
        """Returns the value of `loss` and its gradient by every trainable variable.

        Args:
            loss: of a micro-batch; reads the model's variables.
            states: of `generators`, for the whole batch.
            replica, index: numbers of the replica and of its micro-batch.
        """

    def sum_over_replicas(self, arrays: list[Tensor]) -> list[Tensor]:
        """Returns the sums of each replica's arrays, where each has its own."""
        return arrays

    def share(
        self, images: Tensor, labels: Tensor, update: Tensor, replica: Tensor
    ) -> list[Tensor]:
        """Returns this replica's share of the loss and of its gradients, summed over micro-batches.

        Args:
            images: (examples, height, width, channels).
            labels: (examples, classes).
            update: integer scalar, number of the update.
            replica: int32 scalar, number of the replica.
        """
        count = self.config.accumulation_steps
        states = generator_states(self.config.seed, update, len(self.generators))

        def part(index):
            own_images, own_labels = images, labels
            if count > 1:
                own_images, own_labels = (self.micro_batch(a, index) for a in (images, labels))

            def loss():
                logits = self.model(self.prepare_images(own_images), training=True)
                return ops.sum(self.loss.call(own_labels, logits)) / self.config.batch_size

            return self.differentiate(loss, states, replica, index)

        if count == 1:
            return part(0)
        zeros = [ops.zeros(each.shape, each.dtype) for each in self.model.trainable_variables]

        def add(index, sums):
            return [a + b for a, b in zip(sums, part(index), strict=True)]

        return ops.fori_loop(0, count, add, [ops.zeros((), "float32"), *zeros])

    def update(
        self, images: Tensor, labels: Tensor, requests: Tensor, totals: Totals, replica: Tensor
    ) -> Totals:
        """Changes weights and optimizer by one update, and returns the totals after it.

        Args:
            images, labels, replica: of `share`.
            requests: float32 (2,), of this replica: to save, to stop.
            totals: of the call so far.
        """
        update = ops.cast(self.optimizer.iterations, totals.bad_step.dtype)
        loss, *gradients = self.share(images, labels, update, replica)
        told = ops.concatenate([ops.reshape(loss, (1,)), requests])
        told, *gradients = self.sum_over_replicas([told, *gradients])
        norm = self.optimizer.apply_reduced(gradients)
        usable = ops.logical_and(told[0] < self.config.loss_limit, ops.isfinite(norm))
        known = ops.logical_or(usable, totals.bad_step >= 0)
        return Totals(
            totals.sums + ops.concatenate([told[:1], ops.reshape(norm, (1,)), told[1:]]),
            ops.where(known, totals.bad_step, update),
        )


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
    others = [variable.path for variable in frozen if id(variable) not in trained_once]
    if others:
        raise ValueError(
            "The trainer updates trainable variables only; expected a model without running "
            f"statistics. Received non-trainable variables: {', '.join(others)}."
        )
    return frozen
