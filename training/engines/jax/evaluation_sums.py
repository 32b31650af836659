"""Sums over a whole split, for exact evaluation."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh

from training.engines.base import BatchSums
from training.engines.frozen_weights import is_seed
from training.engines.jax.batches import DeviceBatches
from training.engines.jax.forward import Forward
from training.engines.jax.mesh import batch_sharding, replicated
from training.engines.jax.train_step import Batch


class SplitSums:
    """Sums a function of logits and batches over a split.

    Args:
        mesh: of `training.engines.jax.mesh.create_mesh`.
        model: `keras.Model`, images to logits.
        batch_sums: (float32 logits, batch) -> float32 vector, see `BatchSums`.
        dataset: of this process's parts of the batches, with an `image`; a `tf.data.Dataset`.
    """

    def __init__(self, mesh: Mesh, model: keras.Model, batch_sums: BatchSums, dataset: Any):
        self._forward = Forward(mesh, model)
        self._batch_sums = batch_sums
        self._sharding = batch_sharding(mesh)
        self._dataset = dataset
        # Masks are not applied outside of training: any state of the generators will do.
        self._seeds = [np.asarray(v.value) for v in model.non_trainable_variables if is_seed(v)]
        self._function = jax.jit(self._sum, out_shardings=replicated(mesh))

    def _sum(
        self, weights: Sequence[jax.Array], frozen: Sequence[jax.Array], batch: Batch
    ) -> jax.Array:
        logits = self._forward(weights, frozen, self._seeds, batch["image"], training=False)
        return self._batch_sums(logits.astype(jnp.float32), batch)

    def __call__(self, weights: Sequence[jax.Array], frozen: Sequence[jax.Array]) -> np.ndarray:
        """Returns the float64 sums over all batches of all processes.

        Args:
            weights: of the model's trainable variables, laid out as in training.
            frozen: the weights that do not train.

        Raises:
            ValueError: if the split has no batches.
        """
        sums = []
        batches = DeviceBatches(self._dataset, self._sharding, ahead=2)
        for batch in batches:
            sums.append(self._function(weights, frozen, batch))
            batches.fill()
        if not sums:
            raise ValueError("Expected a split with examples. Received: none.")
        return np.sum([np.asarray(each, np.float64) for each in sums], axis=0)
