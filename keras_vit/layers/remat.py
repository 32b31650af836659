"""Rematerialization: activations computed again for the backward pass instead of kept."""

from collections.abc import Callable

import keras

from keras_vit.typing import Tensor


class RepeatableSeeds(keras.random.SeedGenerator):
    """A stream of random seeds that can be held at one of them.

    Attributes:
        held: the seed that every draw returns, or None to go on along the stream.
    """

    held: Tensor | None = None

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the seed held, or the next of the stream, (2,) integers."""
        return super().next(ordered) if self.held is None else self.held


def remat(layer: keras.layers.Layer, function: Callable) -> Callable:
    """Returns `function` so that its activations are computed again for its gradient.

    It then runs twice, and has to drop the same twice: were seeds drawn inside, the gradient
    would belong to no forward pass at all. So they are drawn here and held meanwhile.

    Args:
        layer: whose layers, the only ones that draw seeds, `function` calls.
        function: of tensors.
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
