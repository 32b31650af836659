"""Masked patch prediction, the paper's self-supervision (section 4.6 and appendix B.1.2)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.backends.by_backend import batch_random
from keras_vit.initializers import RandomNormal
from keras_vit.layers.base import Layer
from keras_vit.layers.patch_embedding import cut_patches
from keras_vit.models.image_model import ModelAroundEncoder, require_kind
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor

# Three bits for each of red, green and blue.
LEVELS = 8
COLORS = LEVELS**3
# The cells that a side of the patch is divided into, each one choice of 512 colors: one is the
# paper's final setting. None stands for all pixels.
TARGETS = {"mean_color": 1, "downsized": 4, "pixels": None}


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchPrediction(ModelAroundEncoder):
    """Trains a Vision Transformer to predict patches that it does not see.

    Half of the patch embeddings of every image are corrupted before positions
    are added: 80 % of them become a learned mask embedding, 10 % the embedding
    of another patch of the image, 10 % stay. One dense layer predicts, from the
    encoder's output at each corrupted patch, what the patch was.

    A functional `keras.Model` from images, (batch, height, width, 3) float32 in
    [-1, 1], to the loss of every corrupted patch, (batch, corrupted) float32.
    Their mean is what `fit` minimizes, with the penalties that layers add; no labels are
    needed and those given are ignored (Keras takes `sample_weight` with labels alone).
    Afterwards `masked.encoder` is fine-tuned like any other model.

    `endpoints` are "positions", "predictions" and "losses"; those of one call of
    `keras.Model(masked.input, masked.endpoints)` belong together.

    Args:
        encoder: a `keras_vit.VisionTransformer`, whose weights are trained. Its head
            and pooling take no part and are not saved.
        target: "mean_color" (the 3-bit mean color of a patch, 512 classes),
            "downsized" (the 3-bit colors of the patch at 4 x 4 pixels, 16 times
            512 classes) or "pixels" (mean squared error of all pixels).
        corruption_rate: float in (0, 1]; the paper also tried 0.15.
        seed: int or None, the start of the random stream of the corruption.

    Raises:
        ValueError: if an argument is out of its range, if the model is of another class, or
            if the patches of a hybrid do not cover its images evenly.

    Examples:
        >>> vit = keras_vit.create_model("ViT-B/16", num_classes=None)
        >>> masked = keras_vit.MaskedPatchPrediction(vit)
        >>> masked.compile(keras.optimizers.AdamW(2e-4))
        >>> masked.fit(images)
    """

    def __init__(
        self,
        encoder: VisionTransformer,
        target: str = "mean_color",
        corruption_rate: float = 0.5,
        seed: int | None = None,
        name: str = "masked_patch_prediction",
        trainable: bool = True,
    ):
        require_one_of("target", target, TARGETS)
        require_kind(encoder, VisionTransformer, "a keras_vit.VisionTransformer")
        if encoder.input.shape[-1] != 3:
            raise ValueError(
                "The targets are colors: expected a model of three channels. Received: "
                f"in_channels={encoder.input.shape[-1]}"
            )
        size, (height, width) = encoder.token_stride, encoder.input.shape[1:3]
        if encoder.arguments["resnet"] and (height % size or width % size):
            raise ValueError(
                f"A token of this hybrid stands for {size} x {size} pixels: expected an image size "
                f"that is a multiple of them. Received: image_size=({height}, {width})"
            )
        policy = encoder.get_layer("embedding").dtype_policy
        stem, encoded = encoder.endpoints["stem"], encoder.endpoints["encoded"]
        corrupt = PatchCorruption(corruption_rate, seed, dtype=policy, name="corruption")
        corrupted, positions = corrupt(stem)
        tokens = keras.Model(stem, encoded, name="encoder")(corrupted)
        places = (positions + encoder.num_prefix_tokens)[..., None]
        tokens = ops.take_along_axis(tokens, places, axis=1)
        predictions = keras.layers.Dense(
            units_of(target, size), kernel_initializer="zeros", dtype="float32", name="prediction"
        )(tokens)
        patches = cut_patches(encoder.input, encoder.grid_size, size)
        losses = patch_losses(target, patches, positions, predictions)
        super().__init__(
            encoder.input,
            {"positions": positions, "predictions": predictions, "losses": losses},
            {"target": target, "corruption_rate": corruption_rate, "seed": seed},
            encoder.dtype_policy,
            name,
            trainable,
        )
        self._record.encoder = encoder

    def compute_loss(
        self,
        x: Tensor = None,
        y: Tensor = None,
        y_pred: Tensor = None,
        sample_weight: Tensor = None,
        training: bool = True,
    ) -> Tensor:
        by_image = ops.mean(y_pred, axis=-1)
        if sample_weight is not None:
            by_image *= ops.reshape(ops.cast(sample_weight, by_image.dtype), (-1,))
        return ops.mean(by_image) + sum(self.losses)


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
        self.keep(locals())
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


def color_classes(colors: Tensor) -> Tensor:
    """Returns the 3-bit colors of `colors`, (..., 3) RGB in [0, 1], as int32 (...) in [0, 512).

    Red is most significant: 64 r + 8 g + b, each the floor of 8 times the color, at most 7.
    """
    levels = ops.clip(ops.floor(ops.cast(colors, "float32") * LEVELS), 0, LEVELS - 1)
    levels = ops.cast(levels, "int32")
    return levels[..., 0] * LEVELS**2 + levels[..., 1] * LEVELS + levels[..., 2]


def color_of_class(classes: Tensor) -> np.ndarray:
    """Returns the middle of the cube of colors of each class, (..., 3) RGB in [0, 1]."""
    classes = np.asarray(classes)
    levels = np.stack([classes // LEVELS**2, classes // LEVELS % LEVELS, classes % LEVELS], -1)
    return (levels + 0.5) / LEVELS


def units_of(target: str, patch_size: int) -> int:
    """Returns how many numbers are predicted for a patch of so many pixels on a side."""
    cells = TARGETS[target]
    if cells is None:
        return patch_size**2 * 3
    if patch_size % cells:
        raise ValueError(
            f"target={target!r} needs patches whose side is a multiple of {cells} pixels. "
            f"Received: {patch_size} pixels"
        )
    return cells**2 * COLORS


def targets_of(target: str, patches: Tensor) -> Tensor:
    """Returns the targets of (batch, patches, size, size, 3) pixels in [-1, 1].

    They are the pixels, (batch, patches, 3 size^2), or int32 colors, (batch, patches, cells^2).
    """
    cells, (_, count, size, _, channels) = TARGETS[target], patches.shape
    if cells is None:
        return ops.reshape(patches, (-1, count, size * size * channels))
    side = (cells, size // cells)
    means = ops.mean(ops.reshape(patches, (-1, count, *side, *side, channels)), axis=(3, 5))
    return color_classes((ops.reshape(means, (-1, count, cells**2, channels)) + 1) / 2)


def patch_losses(target: str, patches: Tensor, positions: Tensor, predictions: Tensor) -> Tensor:
    """Returns the losses of the predicted patches of images, (batch, predicted) float32.

    Colors are compared by cross-entropy, pixels by their mean squared error. `patches` are (batch,
    patches, size, size, 3) float32 in [-1, 1], `positions`, (batch, predicted), their int indices,
    and `predictions` (batch, predicted, units) float32.
    """
    targets = ops.take_along_axis(targets_of(target, patches), positions[..., None], axis=1)
    cells = TARGETS[target]
    if cells is None:
        return ops.mean(ops.square(targets - predictions), axis=-1)
    logits = ops.reshape(predictions, (-1, positions.shape[1], cells**2, COLORS))
    by_cell = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    return ops.mean(by_cell, axis=-1)
