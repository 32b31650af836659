"""A class for every pixel from a plain Vision Transformer: Segmenter (Strudel et al., 2021).

The equations are numbered as there: sections 3.1 (encoder), 3.2 (both decoders).
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.initializers import RandomNormal
from keras_vit.interpolation import half_pixel_weights
from keras_vit.layers.base import Layer
from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.learned_tokens import LearnedTokens
from keras_vit.layers.normalization import LayerNormalization
from keras_vit.models.any_resolution import at_any_resolution
from keras_vit.models.argument_ranges import checked
from keras_vit.models.image_model import ModelAroundEncoder, require_kind
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.type_hints import Tensor

_EPSILON = 1e-5  # of every normalization of the decoder
_DROPOUT = 0.1  # of the decoder's MLPs, projections and attention probabilities


@keras.saving.register_keras_serializable(package="keras_vit")
class Segmenter(ModelAroundEncoder):
    """A logit of every class for every pixel, by a Vision Transformer and a small decoder.

    A functional `keras.Model` from images, (batch, height, width, channels) float32 in [-1, 1], to
    logits, (batch, height, width, num_classes) float32. The decoder gives one number for each patch
    and class, "masks"; these are enlarged to the image, bilinearly between pixel centers.

    `endpoints` are the encoder's up to "encoded", then of the mask decoder "decoder_block_00" and
    so on, (batch, patches + classes, hidden_size), and "class_embeddings", (batch, num_classes,
    hidden_size), normalized; of both "masks", (batch, rows, columns, num_classes), and "logits".
    `encoder` is the Vision Transformer inside, on the same weights.

    Args:
        encoder: a `keras_vit.VisionTransformer` without head; hybrids too. Its weights are
            trained; its pooling takes no part and is not saved. The original's models have
            `layer_norm_epsilon=1e-5` and `gelu="erf"`.
        num_classes: int.
        decoder: "mask" (a transformer of patches and one learned embedding for each class, whose
            scalar products are the masks) or "linear" (one dense layer).
        decoder_layers: int, blocks of the mask decoder.
        decoder_heads: int, attention heads of these blocks, or None: one for 64 channels.
        padding_color: (red, green, blue) in [-1, 1]. `any_resolution` fills images up to whole
            patches with it, below and right. The original's is the mean color of its
            normalization, which `keras_vit.load_checkpoint` sets.

    Raises:
        ValueError: if an argument is out of its range, if the encoder is of another class or has a
            head, or if its image size is not a multiple of its patches.

    Examples:
        >>> encoder = keras_vit.create_model("ViT-S/16", num_classes=None, image_size=512)
        >>> model = keras_vit.Segmenter(encoder, num_classes=150)
        >>> model(images).shape
        (1, 512, 512, 150)
    """

    def __init__(
        self,
        encoder: VisionTransformer,
        num_classes: int,
        decoder: str = "mask",
        decoder_layers: int = 2,
        decoder_heads: int | None = None,
        padding_color: Sequence[float] = (0.0, 0.0, 0.0),
        name: str = "segmenter",
        trainable: bool = True,
    ):
        arguments = checked(locals())
        _require_encoder(arguments.pop("encoder"), num_classes)
        width = encoder.arguments["hidden_size"]
        arguments["decoder_heads"] = arguments["decoder_heads"] or max(width // 64, 1)
        if width % arguments["decoder_heads"]:
            raise ValueError(
                f"`decoder_heads` must divide the encoder's {width} channels. Received: "
                f"decoder_heads={arguments['decoder_heads']}"
            )
        policy = encoder.get_layer("embedding").dtype_policy
        rows, columns = encoder.grid_size
        names = list(encoder.endpoints)
        endpoints = {n: encoder.endpoints[n] for n in names[: names.index("encoded") + 1]}
        first = encoder.num_prefix_tokens
        patches = endpoints["encoded"][:, first:] if first else endpoints["encoded"]
        decode = _mask_decoder if decoder == "mask" else _linear_decoder
        endpoints |= decode(patches, width, arguments, policy)
        grid = _Grid(name="masks_of_patches", dtype="float32")
        endpoints["masks"] = grid(endpoints.pop("masks"), endpoints["stem"])
        enlarge = EnlargedMasks(encoder.token_stride, name="enlarged_masks", dtype="float32")
        endpoints["logits"] = enlarge(endpoints["masks"], encoder.input)
        super().__init__(encoder.input, endpoints, arguments, policy, name, trainable)
        self._record.encoder = encoder
        self.license = encoder.license

    def any_resolution(self, outputs: str | Sequence[str] = "output") -> keras.Model:
        """Returns the same model, on the same weights, for images of every size.

        Images are filled up to whole patches with `padding_color`, and the logits cut to the
        image. Position embeddings are interpolated between the patches' centers, as the original
        does in every forward pass; at the model's own size the result is its own.

        Args:
            outputs: as of `up_to`.

        Raises:
            ValueError: as of `VisionTransformer.any_resolution`.
        """
        padding = PaddedImages(
            self.encoder.token_stride, self.arguments["padding_color"], name="padded_images"
        )
        arguments = self.encoder.arguments
        return at_any_resolution(self, outputs, arguments, padding, keep=EnlargedMasks)


def _require_encoder(encoder, num_classes):
    require_kind(encoder, VisionTransformer, "a keras_vit.VisionTransformer as `encoder`")
    if num_classes is None:
        raise ValueError("`num_classes` must be a positive int. Received: num_classes=None")
    if encoder.arguments["num_classes"] is not None:
        raise ValueError(
            "Expected an encoder without head: build it with num_classes=None. Received: "
            f"{encoder.name}, with num_classes={encoder.arguments['num_classes']}"
        )
    stride, (height, width) = encoder.token_stride, encoder.input.shape[1:3]
    if height % stride or width % stride:
        raise ValueError(
            f"A patch of this encoder stands for {stride} x {stride} pixels: expected an image "
            f"size that is a multiple of them. Received: image_size=({height}, {width}). Build it "
            "for the next larger one; `any_resolution` takes images of all sizes."
        )


def _linear_decoder(patches, width, arguments, policy):
    """One dense layer, which computes in float32 as every head does."""
    head = keras.layers.Dense(
        arguments["num_classes"],
        kernel_initializer=RandomNormal(stddev=0.02),
        dtype="float32",
        name="decoder_head",
    )
    return {"masks": head(patches)}


def _mask_decoder(patches, width, arguments, policy):
    """The mask transformer: patches and class embeddings, then their scalar products."""
    count, initial = arguments["num_classes"], RandomNormal(stddev=0.02)
    projection = {"kernel_initializer": initial, "name": "decoder_projection", "dtype": policy}
    tokens = keras.layers.Dense(width, **projection)(patches)
    tokens = LearnedTokens(count, None, 0.02, name="class_embeddings", dtype=policy)(tokens)
    found = {}
    for index in range(arguments["decoder_layers"]):
        block = EncoderBlock(
            num_heads=arguments["decoder_heads"],
            mlp_dim=4 * width,
            dropout_rate=_DROPOUT,
            attention_dropout_rate=_DROPOUT,
            gelu="erf",
            layer_norm_epsilon=_EPSILON,
            name=f"decoder_block_{index:02d}",
            dtype=policy,
        )
        tokens = found[f"decoder_block_{index:02d}"] = block(tokens)
    tokens = LayerNormalization(_EPSILON, name="decoder_norm", dtype=policy)(tokens)
    products = MaskProducts(count, name="mask_products", dtype="float32")
    masks, found["class_embeddings"] = products(tokens)
    masks = LayerNormalization(_EPSILON, name="mask_norm", dtype="float32")(masks)
    return {**found, "masks": masks}


class _Grid(Layer):
    """Gives tokens the rows and columns of the stem: (batch, rows, columns, channels)."""

    def call(self, tokens: Tensor, stem: Tensor) -> Tensor:
        rows, columns = ops.shape(stem)[1:3]
        return ops.reshape(tokens, (-1, rows, columns, tokens.shape[-1]))

    def compute_output_shape(self, tokens_shape: tuple, stem_shape: tuple) -> tuple:  # type: ignore[override]
        return (*stem_shape[:3], tokens_shape[-1])


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskProducts(Layer):
    """Cosines between projected patches and projected class embeddings (section 3.2).

    Args:
        num_classes: int, the last of the tokens.

    Call arguments:
        tokens: (batch, patches + num_classes, channels).

    Returns:
        Masks, (batch, patches, num_classes), and the classes' normalized embeddings, (batch,
        num_classes, channels); float32.
    """

    def __init__(self, num_classes: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def build(self, input_shape: tuple) -> None:
        shape = (input_shape[-1],) * 2
        initial = RandomNormal(stddev=input_shape[-1] ** -0.5)
        self.patch_matrix = self.add_weight(name="patch_matrix", shape=shape, initializer=initial)
        self.class_matrix = self.add_weight(name="class_matrix", shape=shape, initializer=initial)

    def call(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        tokens = ops.cast(tokens, "float32")
        patches = _unit(ops.matmul(tokens[:, : -self.num_classes], self.patch_matrix))
        classes = _unit(ops.matmul(tokens[:, -self.num_classes :], self.class_matrix))
        return ops.matmul(patches, ops.transpose(classes, (0, 2, 1))), classes

    def compute_output_shape(self, input_shape: tuple) -> tuple[tuple, tuple]:
        batch, tokens, channels = input_shape
        patches = None if tokens is None else tokens - self.num_classes
        return (batch, patches, self.num_classes), (batch, self.num_classes, channels)


def _unit(vectors):
    return vectors * ops.rsqrt(ops.sum(vectors * vectors, axis=-1, keepdims=True))


@keras.saving.register_keras_serializable(package="keras_vit")
class PaddedImages(Layer):
    """Fills images up to whole patches, below and right.

    Args:
        patch_size: int, in pixels.
        color: a number for each of three channels; images of others are filled with their mean.

    Call arguments:
        images: (batch, height, width, channels).
    """

    def __init__(self, patch_size: int, color: Sequence[float], **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())
        self.color = tuple(color)

    def call(self, images: Tensor) -> Tensor:
        height, width, channels = ops.shape(images)[1:4]
        sides = ((0, 0), (0, -height % self.patch_size), (0, -width % self.patch_size), (0, 0))
        if not any(self.color):
            return ops.pad(images, sides)
        color = self.color if channels == 3 else (sum(self.color) / 3,) * channels
        inside = ops.pad(ops.ones_like(images), sides)
        fill = ops.convert_to_tensor(color, images.dtype)
        return ops.where(inside > 0, ops.pad(images, sides), fill)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, height, width, channels = input_shape
        sides = (each and -(-each // self.patch_size) * self.patch_size for each in (height, width))
        return batch, *sides, channels


@keras.saving.register_keras_serializable(package="keras_vit")
class EnlargedMasks(Layer):
    """Enlarges masks of patches to the pixels, bilinearly between centers, and cuts the padding.

    Args:
        patch_size: int, in pixels.

    Call arguments:
        masks: (batch, rows, columns, classes).
        images: (batch, height, width, channels), whose height and width the result has.
    """

    def __init__(self, patch_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def call(self, masks: Tensor, images: Tensor) -> Tensor:
        height, width = ops.shape(images)[1:3]
        rows, columns = ops.shape(masks)[1:3]
        size = (rows * self.patch_size, columns * self.patch_size)
        if not all(isinstance(side, int) for side in size):
            # Keras resizes to sizes that are known alone.
            weights = (half_pixel_weights(side, self.patch_size * side) for side in (rows, columns))
            masks = ops.einsum("ir,jc,brcn->bijn", *weights, masks)
            return masks[:, :height, :width]
        if self.patch_size > 1:
            masks = ops.image.resize(masks, size, "bilinear", data_format="channels_last")
        return masks if size == (height, width) else masks[:, :height, :width]

    def compute_output_shape(self, masks_shape: tuple, images_shape: tuple) -> tuple:  # type: ignore[override]
        return masks_shape[0], *images_shape[1:3], masks_shape[-1]
