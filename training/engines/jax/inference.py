"""Compiled inference of Keras models on JAX."""

from collections.abc import Callable

import jax
import keras
import numpy as np

from keras_vit.typing import Tensor


def compiled(model: keras.Model) -> Callable[[Tensor], jax.Array]:
    """Returns a function from images to what the model returns with its weights of the moment."""

    @jax.jit
    def infer(trainable, non_trainable, images):
        return model.stateless_call(trainable, non_trainable, images, training=False)[0]

    def call(images):
        return infer(
            [variable.value for variable in model.trainable_variables],
            [variable.value for variable in model.non_trainable_variables],
            np.asarray(images),
        )

    return call
