"""Corrupted patches: what masked patch prediction hides (appendix B.1.2)."""

from typing import Any

import keras
from keras import ops

from keras_vit.backends.by_backend import batch_random
from keras_vit.initializers import RandomNormal
from keras_vit.layers.base import Layer
from keras_vit.type_hints import Tensor


def corruption_of(patches: int, rate: float) -> tuple[int, int, int]:
    """Returns how many of an image's patches are masked (80 %), replaced (10 %) and kept.

    Masked ones get the mask embedding, replaced ones the embedding of another patch; kept ones are
    predicted but not changed. Python's `round` takes halves to the even number.
    """
    corrupted = round(rate * patches)
    masked, replaced = round(0.8 * corrupted), round(0.1 * corrupted)
    return masked, replaced, corrupted - masked - replaced


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchCorruption(Layer):
    """Corrupts a part of the patch embeddings, before positions are added.

    Args:
        rate: float in (0, 1], the part of the patches of every image.
        seed: int or None, the start of this layer's random stream.

    Call arguments:
        stem: (batch, rows, columns, channels) patch embeddings.

    Returns:
        A tensor like `stem`, and the (batch, corrupted) int32 indices of the
        corrupted patches in raster order of the grid. Every image has the same
        number of them, in random order, see `corruption_of`.
    """

    def __init__(self, rate: float = 0.5, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: tuple[int, ...]) -> None:
        _, rows, columns, channels = input_shape
        self.patches = rows * columns
        self.counts = corruption_of(self.patches, self.rate)
        if not 0 < self.rate <= 1 or sum(self.counts) < 1 or self.patches < 2:
            raise ValueError(
                "Expected a rate in (0, 1] that corrupts at least one of at least two patches. "
                f"Received: rate={self.rate}, {rows} x {columns} patches"
            )
        initializer = RandomNormal(stddev=0.02)
        self.mask = self.add_weight(name="mask", shape=(channels,), initializer=initializer)

    def call(self, stem: Tensor) -> tuple[Tensor, Tensor]:
        batch, rows, columns, channels = ops.shape(stem)
        tokens = ops.reshape(stem, (-1, self.patches, channels))
        shape = (batch, self.patches)
        draws = batch_random()
        order = ops.argsort(draws.uniform(shape, seed=self.seed_generator), axis=-1)
        offset = draws.randint(shape, 1, self.patches, seed=self.seed_generator)
        other = (ops.arange(self.patches) + offset) % self.patches
        others = ops.take_along_axis(tokens, other[..., None], axis=1)

        masked, replaced, _ = self.counts
        rank = ops.argsort(order, axis=-1)[..., None]
        mask = ops.cast(self.mask, tokens.dtype)
        corrupted = ops.where(rank < masked + replaced, others, tokens)
        corrupted = ops.where(rank < masked, mask, corrupted)
        positions = ops.cast(order[:, : sum(self.counts)], "int32")
        return ops.reshape(corrupted, (-1, rows, columns, channels)), positions

    def compute_output_spec(self, stem: Tensor) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        batch = stem.shape[0]
        return (
            keras.KerasTensor(stem.shape, dtype=self.compute_dtype),
            keras.KerasTensor((batch, sum(self.counts)), dtype="int32"),
        )
