"""Dropout of elements, and of the branches of whole examples, that a seed repeats."""

from collections.abc import Callable
from typing import Any

import keras

from keras_vit.backends.by_backend import batch_random
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


class RepeatableSeeds(keras.random.SeedGenerator):
    """A stream of random seeds; one that is `held` is the result of every draw."""

    held: Tensor | None = None

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the seed that is held, or the next of the stream, (2,) integers."""
        return super().next(ordered) if self.held is None else self.held


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(Layer):
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
        self.keep(locals())
        if rate > 0:
            self.seed_generator = RepeatableSeeds(seed)
        self.supports_masking = True
        self.built = True

    def noise_shape(self, inputs: Tensor) -> tuple | None:
        """Returns the shape of the noise, broadcast to the inputs; None for the inputs' shape."""
        return None

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        shape = self.noise_shape(inputs)
        return batch_random().dropout(inputs, self.rate, shape, seed=self.seed_generator)

    def save_own_variables(self, store: dict) -> None:
        super().save_own_variables(store)
        if self.rate > 0:
            store["seed"] = self.seed_generator.state

    def load_own_variables(self, store: dict) -> None:
        # Keras leaves random streams out of its files; with them training resumes exactly.
        if self.rate > 0 and "seed" in store:
            self.seed_generator.state.assign(store["seed"])


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


def remat(layer: keras.layers.Layer, function: Callable) -> Callable:
    """Returns a function of tensors whose activations are computed again for its gradient.

    The function then runs twice and has to drop the same elements twice. So the seeds of `layer`
    and the layers inside it, which are all that it draws, are drawn here, once, and held while it
    runs.
    """
    inner = layer._flatten_layers()
    streams = [layer.seed_generator for layer in inner if hasattr(layer, "seed_generator")]
    seeds = [stream.next() for stream in streams]

    def hold(values):
        for stream, value in zip(streams, values, strict=True):
            stream.held = value

    def run(*tensors):
        hold(seeds)
        try:
            return function(*tensors)
        finally:
            hold([None] * len(seeds))

    return keras.remat(run)
