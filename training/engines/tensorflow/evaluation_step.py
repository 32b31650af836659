"""Classification metrics of a whole split, on every replica of a strategy."""

import tensorflow as tf

from training.engines.tensorflow import strategies


class EvaluationLoop:
    """Loss and accuracies over a split, exact on every example.

    Args:
        strategy: `tf.distribute.Strategy` that `model` was made under.
        model: `keras.Model`, images to logits.
        loss: `keras.losses.Loss` of `training.recipes.losses`.
        make_dataset: function of (num_input_pipelines, input_pipeline_id) that returns batches of
            `{"image", "label", "mask"}`, the mask 0 on the examples that pad the last one.
        prepare_images: function of a batch of images that the device applies first, or None.
    """

    def __init__(self, strategy, model, loss, make_dataset, prepare_images=None):
        self.strategy = strategy
        self.model = model
        self.loss = loss
        self.prepare_images = prepare_images or (lambda images: images)
        self._dataset = strategies.distribute(strategy, make_dataset)
        self._evaluate_batch = tf.function(self._batch)

    def _replica(self, images, labels, mask):
        logits = tf.cast(self.model(self.prepare_images(images), training=False), tf.float32)
        best = tf.math.top_k(logits, k=min(5, logits.shape[-1])).indices
        hits = tf.gather(labels, best, batch_dims=1)
        sums = tf.stack(
            [
                tf.reduce_sum(mask * self.loss.call(labels, logits)),
                tf.reduce_sum(mask * hits[:, 0]),
                tf.reduce_sum(mask * tf.reduce_max(hits, axis=-1)),
                tf.reduce_sum(mask),
            ]
        )
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)

    def _batch(self, batch):
        sums = self.strategy.run(self._replica, (batch["image"], batch["label"], batch["mask"]))
        return self.strategy.experimental_local_results(sums)[0]

    def __call__(self):
        """Returns `{"loss", "top1", "top5", "count"}` as floats and an int, equal on all workers.

        The label of the prediction counts, so that multi-hot labels accept each of their classes.
        """
        totals = [0.0, 0.0, 0.0, 0.0]
        for batch in self._dataset:
            sums = self._evaluate_batch(batch).numpy()
            totals = [total + float(value) for total, value in zip(totals, sums, strict=True)]
        loss, top1, top5, count = totals
        if not count:
            raise ValueError("The evaluation split has no examples.")
        return {
            "loss": loss / count,
            "top1": top1 / count,
            "top5": top5 / count,
            "count": int(count),
        }
