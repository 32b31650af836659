"""One update on one replica, and many of them per call from the host."""

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_vit.backends.tensorflow.batch_part import seeds_of_part
from keras_vit.typing import Tensor
from training.engines.base import PrepareImages, Report
from training.engines.frozen_weights import frozen_weights, is_seed


class TrainSteps:
    """Runs updates of a model under a `tf.distribute` strategy.

    Each update sums `loss / batch_size` over the examples of a replica, all-reduces the gradients
    of all variables at once, and only then clips and applies them, so that any number of replicas
    computes what one does. Masks are functions of (seed, step, position in the batch).

    Args:
        strategy: `tf.distribute.Strategy` in whose scope `model` and `optimizer` were made.
        model: `keras.Model`, images to logits.
        optimizer: of `training.recipes.optimizers`, built.
        loss: `keras.losses.Loss` of `training.recipes.losses`.
        batch_size: examples per update, over all replicas.
        seed: int, start of the dropout masks.
        accumulation_steps: micro-batches per replica and update.
        jit_compile: whether XLA compiles the step; ignored on TPU, which always compiles.
        loss_limit: largest loss that counts as usable.
        prepare_images: function of a batch of images that the device applies first, or None.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: keras.losses.Loss,
        *,
        batch_size: int,
        seed: int = 0,
        accumulation_steps: int = 1,
        jit_compile: bool = False,
        loss_limit: float = 1e6,
        prepare_images: PrepareImages | None = None,
    ):
        self.strategy = strategy
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.batch_size = batch_size
        self.seed = seed
        self.accumulation_steps = accumulation_steps
        self.loss_limit = loss_limit
        self.prepare_images = prepare_images or (lambda images: images)
        frozen_weights(model)
        self.seed_states = [each for each in model.non_trainable_variables if is_seed(each)]
        with strategy.scope():
            # Every replica holds the same sums, so that reading them needs no communication.
            self._sums = tf.Variable(tf.zeros([4]), trainable=False)
            self._bad_step = tf.Variable(-1, dtype=tf.int64, trainable=False)

        compiles_itself = isinstance(strategy, tf.distribute.TPUStrategy)
        alone = strategy.num_replicas_in_sync == 1
        self._gradients = self.gradients
        self._update = self.update
        if jit_compile and not compiles_itself:
            # XLA cannot hold an all-reduce between devices of one host: there it compiles
            # everything up to the all-reduce, which is nearly all of the work.
            if alone and not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
                self._update = tf.function(self.update, jit_compile=True)
            else:
                self._gradients = tf.function(self.gradients, jit_compile=True)
        self._function = tf.function(self._run, reduce_retracing=True)

    def dropout_seeds(self, replica: Tensor, micro_batch: int) -> Tensor:
        """Returns the state of every seed generator of the model, (generators, 2) int64."""
        key = tf.stack([tf.constant(self.seed, tf.int64), self.optimizer.iterations.value])
        # So that runs which began when this was the number of the part keep their masks.
        key = tf.random.experimental.stateless_fold_in(key, tf.constant(0, tf.int64))
        seeds = tf.random.stateless_uniform(
            [len(self.seed_states), 2], key, maxval=tf.int32.max, dtype=tf.int32
        )
        part = tf.cast(replica, tf.int64) * self.accumulation_steps + micro_batch
        return seeds_of_part(tf.cast(seeds, tf.int64), part)

    def gradients(
        self, images: Tensor, labels: Tensor, replica: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns this replica's share of the loss and of its gradients.

        Args:
            images: (examples, height, width, channels), the replica's part of the batch.
            labels: (examples, classes).
            replica: int32 scalar, number of the replica.

        Returns:
            loss, a float32 scalar, and one float32 tensor per trainable variable.
        """
        variables = [variable.value for variable in self.model.trainable_variables]
        total: Any = 0.0
        sums: Any = None
        parts = [(images, labels)]
        if self.accumulation_steps > 1:
            split = (tf.split(part, self.accumulation_steps) for part in (images, labels))
            parts = zip(*split, strict=True)
        for index, (micro_images, micro_labels) in enumerate(parts):
            mapping = []
            if self.seed_states:
                seeds = tf.unstack(self.dropout_seeds(replica, index))
                mapping = list(zip(self.seed_states, seeds, strict=True))
            micro_images = self.prepare_images(micro_images)
            with tf.GradientTape() as tape:
                with keras.StatelessScope(state_mapping=mapping):
                    logits = self.model(micro_images, training=True)
                losses = self.loss.call(micro_labels, logits)
                loss = tf.reduce_sum(losses) / self.batch_size
            gradients = tape.gradient(
                loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            total = total + loss
            if sums is None:
                sums = gradients
            else:
                sums = [a + b for a, b in zip(sums, gradients, strict=True)]
        return total, sums

    def sum_over_replicas(self, tensors: list[Tensor]) -> list[Tensor]:
        """Returns the sums of this replica's tensors with those of all others, in one go."""
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync == 1:
            return tensors
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

    def update(self, images: Tensor, labels: Tensor, requests: Tensor) -> None:
        """One update, in replica context: gradients, all-reduce, clipping, new weights."""
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        step = tf.identity(self.optimizer.iterations.value)
        loss, gradients = self._gradients(images, labels, replica)

        shares = tf.concat([[loss], requests], 0)
        shares, *gradients = self.sum_over_replicas([shares, *gradients])
        norm = self.optimizer.apply_reduced(gradients)

        usable = tf.logical_and(shares[0] < self.loss_limit, tf.math.is_finite(norm))
        first = tf.logical_and(tf.logical_not(usable), self._bad_step < 0)
        self._bad_step.assign(tf.where(first, step, self._bad_step))
        self._sums.assign_add(tf.concat([shares[:1], [norm], shares[1:]], 0))

    def _run(self, iterator, steps, requests):
        self._sums.assign(tf.zeros([4]))
        self._bad_step.assign(-1)
        for _ in tf.range(steps):
            batch = next(iterator)
            self.strategy.run(self._update, (batch["image"], batch["label"], requests))
        return self._sums.read_value(), self._bad_step.read_value()

    def __call__(
        self, iterator: Iterator[Any], steps: int, save: bool = False, stop: bool = False
    ) -> Report:
        """Runs `steps` updates on the next batches of `iterator`.

        Args:
            iterator: distributed iterator over `{"image", "label"}`.
            steps: int, at least 1.
            save, stop: this worker's requests, which every worker hears of.

        Returns:
            A `Report`.
        """
        requests = tf.constant([save, stop], tf.float32)
        sums, bad_step = self._function(iterator, tf.constant(steps), requests)
        loss, norm, save, stop = sums.numpy().tolist()
        return Report(loss / steps, norm / steps, save > 0, stop > 0, int(bad_step))
