"""Dropout of elements, and of the branches of whole examples."""

from typing import Any

import keras

from keras_vit.layers.batch_random import batch_random
from keras_vit.layers.remat import RepeatableSeeds
from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(keras.layers.Layer):
    """Dropout whose random stream is saved with the model and can be repeated.

    Args:
        rate: float in [0, 1), the fraction of elements set to zero.
        seed: int or None, the start of this layer's random stream.

    Call arguments:
        inputs: float tensor of any shape.
        training: bool; without it the inputs pass unchanged.

    Returns:
        A tensor like `inputs`; kept elements are divided by `1 - rate`.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must lie in [0, 1). Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        if rate > 0:
            self.seed_generator = RepeatableSeeds(seed)
        self.supports_masking = True
        self.built = True

    def noise_shape(self, inputs: Tensor) -> tuple | None:
        """Returns the shape of what is drawn, broadcast to the inputs; None for theirs."""
        return None

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        shape = self.noise_shape(inputs)
        return batch_random().dropout(inputs, self.rate, shape, seed=self.seed_generator)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def save_own_variables(self, store: dict) -> None:
        super().save_own_variables(store)
        if self.rate > 0:
            store["seed"] = self.seed_generator.state

    def load_own_variables(self, store: dict) -> None:
        # Keras leaves random streams out of its files; with them training resumes exactly.
        if self.rate > 0 and "seed" in store:
            self.seed_generator.state.assign(store["seed"])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable(package="keras_vit")
class StochasticDepth(Dropout):
    """Drops a residual branch for whole examples (Huang et al., 2016), as AugReg does.

    Args:
        rate: float in [0, 1), the probability that an example skips the branch.
        seed: int or None.

    Call arguments:
        inputs: (batch, ...) output of the branch.
        training: bool.
    """

    def noise_shape(self, inputs: Tensor) -> tuple | None:
        return (keras.ops.shape(inputs)[0], *(1,) * (len(inputs.shape) - 1))
