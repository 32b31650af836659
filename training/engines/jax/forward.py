"""The forward pass of a model on a mesh."""

from collections.abc import Iterable, Sequence

import jax
import keras
from jax.sharding import Mesh

from keras_vit.typing import Tensor
from training.engines.frozen_weights import is_seed
from training.engines.jax.mesh import ActivationLayout, gather_on


class Forward:
    """Computes logits from weights that are divided over a mesh.

    Each weight is made whole where a layer reads it, in a block that recomputes its activations
    too. Whether it is then gathered twice or kept is the compiler's choice.

    Args:
        mesh: of `training.engines.jax.mesh.create_mesh`.
        model: `keras.Model`, images to logits.
    """

    def __init__(self, mesh: Mesh, model: keras.Model):
        self.model = model
        self._layout = ActivationLayout(mesh)
        self._gather = gather_on(mesh)

    def __call__(
        self,
        weights: Sequence[jax.Array],
        frozen: Iterable[jax.Array],
        seeds: Iterable[Tensor],
        images: jax.Array,
        *,
        training: bool,
    ) -> jax.Array:
        """Returns the logits, (batch, classes).

        Args:
            weights: of the model's trainable variables.
            frozen: the weights that do not train.
            seeds: states of the model's seed generators.
            images: (batch, height, width, 3).
            training: whether masks are applied.
        """
        frozen, seeds = iter(frozen), iter(seeds)
        values = [
            *zip(self.model.trainable_variables, weights, strict=True),
            *(
                (variable, next(seeds if is_seed(variable) else frozen))
                for variable in self.model.non_trainable_variables
            ),
        ]
        with self._layout.scope(), _WholeWeights(values, self._gather):
            return self.model.call(images, training=training)


class _WholeWeights(keras.StatelessScope):
    """Gives variables their values for a call, and weights whole."""

    def __init__(self, values, gather):
        super().__init__(values)
        self._gather = gather

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        return value if value is None or is_seed(variable) else self._gather(value)
