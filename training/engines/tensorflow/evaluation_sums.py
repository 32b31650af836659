"""Sums over a whole split, on every replica of a strategy: what evaluation is made of."""

import keras
import numpy as np
import tensorflow as tf

from training.engines.base import BatchSums, MakeDataset, PrepareImages
from training.engines.tensorflow import strategies


class SplitSums:
    """Sums a function of logits and labels over a split; called, it returns the sums.

    Args:
        strategy: `tf.distribute.Strategy` that `model` was made under.
        model: `keras.Model`, images to logits.
        batch_sums: function of (float32 logits, batch) that returns a float32 vector, summed over
            the examples of the batch.
        make_dataset: function of (num_input_pipelines, input_pipeline_id) that returns batches
            with an `image`.
        prepare_images: function of a batch of images that the device applies first, or None.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        batch_sums: BatchSums,
        make_dataset: MakeDataset,
        prepare_images: PrepareImages | None = None,
    ):
        self.strategy = strategy
        self.model = model
        self.batch_sums = batch_sums
        self.prepare_images = prepare_images or (lambda images: images)
        self._dataset = strategies.distribute(strategy, make_dataset)
        self._batch = tf.function(self._run)

    def _replica(self, batch):
        logits = self.model(self.prepare_images(batch["image"]), training=False)
        sums = self.batch_sums(tf.cast(logits, tf.float32), batch)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)

    def _run(self, batch):
        sums = self.strategy.run(self._replica, (batch,))
        return self.strategy.experimental_local_results(sums)[0]

    def __call__(self) -> np.ndarray:
        """Returns the sums over the split, float64, equal on all workers."""
        total = None
        for batch in self._dataset:
            sums = self._batch(batch).numpy().astype(np.float64)
            total = sums if total is None else total + sums
        if total is None:
            raise ValueError("Expected a split with examples. Received: none.")
        return total
