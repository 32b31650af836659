"""Corrupting patch embeddings for masked patch prediction (appendix B.1.2)."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_vit.layers.batch_random import batch_random
from keras_vit.typing import Tensor


class Corruption(NamedTuple):
    """How many patches of an image suffer what.

    Attributes:
        masked: patches whose embedding becomes the mask embedding, 80 %.
        replaced: patches that get the embedding of another patch, 10 %.
        kept: patches that are predicted but not changed, the rest.
    """

    masked: int
    replaced: int
    kept: int

    @classmethod
    def of(cls, patches: int, rate: float = 0.5) -> "Corruption":
        """Divides `rate` of the patches; Python's `round` takes halves to the even number."""
        corrupted = round(rate * patches)
        masked, replaced = round(0.8 * corrupted), round(0.1 * corrupted)
        return cls(masked, replaced, corrupted - masked - replaced)


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchCorruption(keras.layers.Layer):
    """Corrupts a part of the patch embeddings, before positions are added.

    Args:
        rate: float in (0, 1], the part of the patches of every image.
        seed: int or None, the start of this layer's random stream.

    Call arguments:
        stem: (batch, rows, columns, channels) patch embeddings.

    Returns:
        A tensor like `stem`, and the (batch, corrupted) int32 indices of the
        corrupted patches in raster order of the grid. Every image has the same
        number of them, in random order, see `Corruption`.
    """

    def __init__(self, rate: float = 0.5, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: tuple[int, ...]) -> None:
        _, rows, columns, channels = input_shape
        self.patches = rows * columns
        self.counts = Corruption.of(self.patches, self.rate)
        if not 0 < self.rate <= 1 or sum(self.counts) < 1 or self.patches < 2:
            raise ValueError(
                "Expected a rate in (0, 1] that corrupts at least one of at least two patches. "
                f"Received: rate={self.rate}, {rows} x {columns} patches"
            )
        self.mask = self.add_weight(
            name="mask",
            shape=(channels,),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, stem: Tensor) -> tuple[Tensor, Tensor]:
        batch, rows, columns, channels = ops.shape(stem)
        tokens = ops.reshape(stem, (-1, self.patches, channels))
        shape = (batch, self.patches)
        draws = batch_random()
        order = ops.argsort(draws.uniform(shape, seed=self.seed_generator), axis=-1)
        offset = draws.randint(shape, 1, self.patches, seed=self.seed_generator)
        other = (ops.arange(self.patches) + offset) % self.patches
        others = ops.take_along_axis(tokens, other[..., None], axis=1)

        rank = ops.argsort(order, axis=-1)[..., None]
        mask = ops.cast(self.mask, tokens.dtype)
        replaced = ops.where(rank < self.counts.masked + self.counts.replaced, others, tokens)
        corrupted = ops.where(rank < self.counts.masked, mask, replaced)
        positions = ops.cast(order[:, : sum(self.counts)], "int32")
        return ops.reshape(corrupted, (-1, rows, columns, channels)), positions

    def compute_output_spec(self, stem: Tensor) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        batch = stem.shape[0]
        return (
            keras.KerasTensor(stem.shape, dtype=self.compute_dtype),
            keras.KerasTensor((batch, sum(self.counts)), dtype="int32"),
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
