"""The Vision Transformer (section 3.1)."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from keras_vit import layers
from keras_vit.backends.by_backend import require_fused
from keras_vit.initializers import VarianceScaling
from keras_vit.layers.position_embeddings_2d import POSITION_EMBEDDINGS
from keras_vit.models.any_resolution import AttentionOfBlock, at_any_resolution
from keras_vit.models.argument_ranges import CLASS_TOKENS, checked
from keras_vit.models.image_model import ImageModel, classification_head, images_and_policy
from keras_vit.models.resnets import hybrid_stem, stem_stride
from keras_vit.type_hints import ImageSize, Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class VisionTransformer(ImageModel):
    """Patches, class token, position embeddings, encoder, head: equations 1 to 4.

    A functional `keras.Model` from images, (batch, height, width, in_channels) float32 in
    [-1, 1], to logits, (batch, num_classes) float32, or to the representation,
    (batch, hidden_size), where `num_classes` is None. `endpoints` names what lies between:
    "stem", (batch, rows, columns, hidden_size); the encoder's tokens, each (batch, tokens,
    hidden_size), "embedded", "block_00" and so on, "encoded"; "representation" and "logits".

    Args:
        image_size: int or (height, width), in pixels.
        patch_size: int, in pixels, or in cells of the feature map of a hybrid.
        hidden_size: int, D of Table 1.
        mlp_dim: int, width of the MLPs' hidden layer.
        num_heads: int, must divide `hidden_size`.
        num_layers: int, blocks of the encoder.
        num_classes: int, or None for a model without head.
        classifier: "token" (the class token), "gap" (the mean of the tokens), "token_gap" (the
            class token, then the mean of the patches: DINOv2's linear classifier), "map"
            (multi-head attention pooling), "unpooled" (every token, with the head, if any,
            applied to each) or "distilled" (DeiT's: a head on the class token and one on a second,
            that of distillation; the mean of both, "class_logits" and "distillation_logits" of
            `endpoints`, is the output. The representation is both tokens).
        representation_size: int, the hidden tanh layer of the head that pre-training uses, or None.
        resnet: None, or {"num_layers": (...), "width_factor": int} for a hybrid.
        register_tokens: int, learned tokens without position after the class token, which no
            pooling and no head reads (Darcet et al., 2023); 4 in DINOv2's models with registers.
        position_embedding: "none", "learned_1d", "learned_2d", "sincos_2d" or
            "relative" (appendix D.3), or "rope_2d" (DINOv3: every block turns the queries and
            keys of patches by their places; no token has a table).
        position_placement: "stem" (added once), "every" (another table before
            every block) or "shared" (the same table before every block).
        attention: "global", or "axial" for Axial-ViT (appendix D.5).
        dropout_rate: float, dropout after the position embedding, after the
            projections of attention and after both dense layers of every MLP.
        attention_dropout_rate: float, dropout of the attention probabilities.
        stochastic_depth_rate: float, the last block's probability of being
            skipped; it grows linearly from 0 at the first block.
        mlp: a name of `keras_vit.layers.mlp.MLPS`, of the blocks' perceptron: "gelu" or "swiglu"
            (gated: three dense layers of `mlp_dim`, and no GELU).
        gelu: "tanh" (the original's approximation) or "erf".
        layer_norm_epsilon: float.
        head_bias_init: float, the initial bias of the head; its kernel is zero.
        remat: bool, whether training recomputes a block's activations instead of keeping them.
        flash_attention: None, True or False: whether a fused kernel computes attention, which
            JAX has on NVIDIA's GPUs in 16 bits. None takes it there, where nothing needs the
            probabilities; True demands it, here and now: a saved model takes it where it can.
        in_channels: int, of the images; checkpoints of color images are converted.

    Raises:
        ValueError: if an argument is out of its range, two contradict, or a fused kernel is
            demanded where there is none.

    Examples:
        >>> model = keras_vit.VisionTransformer(
        ...     image_size=32, patch_size=4, hidden_size=64, mlp_dim=128,
        ...     num_heads=4, num_layers=6, num_classes=10)
        >>> model.compile("adamw", keras.losses.CategoricalCrossentropy(from_logits=True))
    """

    def __init__(
        self,
        image_size: ImageSize = 224,
        patch_size: int = 16,
        hidden_size: int = 768,
        mlp_dim: int = 3072,
        num_heads: int = 12,
        num_layers: int = 12,
        num_classes: int | None = 1000,
        classifier: str = "token",
        representation_size: int | None = None,
        resnet: dict[str, Any] | None = None,
        register_tokens: int = 0,
        position_embedding: str = "learned_1d",
        position_placement: str = "stem",
        attention: str = "global",
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        stochastic_depth_rate: float = 0.0,
        mlp: str = "gelu",
        gelu: str = "tanh",
        layer_norm_epsilon: float = 1e-6,
        head_bias_init: float = 0.0,
        remat: bool = False,
        flash_attention: bool | None = None,
        in_channels: int = 3,
        name: str = "vision_transformer",
        trainable: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        arguments = checked(locals())
        images, policy = images_and_policy(arguments, dtype)
        if arguments["flash_attention"]:
            require_fused(policy.compute_dtype, arguments["hidden_size"] // arguments["num_heads"])
            # Where the model is loaded, and for other dtypes, it decides for itself.
            arguments["flash_attention"] = None
        a = SimpleNamespace(**arguments, dtype=policy)
        a.class_tokens = CLASS_TOKENS.get(a.classifier, 0)
        grid, embedded = embed(images, a)
        a.rotation = {"rotary_grid": grid} if a.position_embedding == "rope_2d" else {}
        blocks, tokens = encode(grid, embedded, a)
        norm = layers.LayerNormalization(a.layer_norm_epsilon, name="encoder_norm", dtype=policy)
        encoded = norm(tokens[-1][1])
        classify = head(a)
        endpoints = {
            "stem": grid,
            "embedded": embedded,
            **{f"block_{index:02d}": after for index, (_, after) in enumerate(tokens)},
            "encoded": encoded,
            **classify(pool(encoded, a)),
        }
        shortcut = {}
        if a.classifier in ("token", "distilled"):
            shortcut = classify(pool(norm(class_tokens_alone(blocks[-1], tokens[-1][0], a)), a))
        super().__init__(images, endpoints, arguments, policy, name, trainable, shortcut)
        self._record.blocks, self._record.block_inputs = blocks, [before for before, _ in tokens]
        self._record.rotation = a.rotation

    @property
    def grid_size(self) -> tuple[int, int]:
        """The (rows, columns) of patches."""
        return tuple(self.endpoints["stem"].shape[1:3])

    @property
    def token_stride(self) -> int:
        """Pixels of the image between neighboring tokens, those of the ResNet's stride included."""
        resnet = self.arguments["resnet"]
        return self.arguments["patch_size"] * (stem_stride(resnet["num_layers"]) if resnet else 1)

    @property
    def num_prefix_tokens(self) -> int:
        """The tokens before those of the patches: class tokens and registers."""
        rows, columns = self.grid_size
        return self.endpoints["encoded"].shape[1] - rows * columns

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        """The encoder's blocks, in order."""
        return self._record.blocks

    @property
    def attention_endpoints(self) -> dict[str, Tensor]:
        """The attention weights of every block (equation 6), as tensors of the model's graph.

        A dict of "block_00/attention" and so on to (batch, heads, tokens, tokens) float32.

        Raises:
            ValueError: if the model's attention is axial.
        """
        if self.arguments["attention"] == "axial":
            raise ValueError(
                "Axial attention has one map for every row and column instead of one for the "
                'image. Use a model with attention="global".'
            )
        pairs = zip(self.blocks, self._record.block_inputs, strict=True)
        return {
            f"block_{index:02d}/attention": AttentionOfBlock(block)(tokens, **self._record.rotation)
            for index, (block, tokens) in enumerate(pairs)
        }

    def any_resolution(self, outputs: str | Sequence[str] = "output") -> keras.Model:
        """Returns the same model, on the same weights, for images of every size.

        Learned position embeddings are interpolated in the graph, corners aligned, to
        the grid of the image at hand; at the model's own size the result is its
        own. Sines, cosines and rotations are computed. Pixels that do not fill a patch are cropped.

        Args:
            outputs: as of `up_to`.

        Raises:
            ValueError: as `up_to`, or if the model's weights know the grid in another way, as
                relative positions and axial attention do.
        """
        return at_any_resolution(self, outputs, self.arguments)


def embed(images: Tensor, a: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Equation 1: patches, class token, position embeddings.

    Returns the patches' grid, (batch, rows, columns, hidden_size), and the encoder's tokens,
    (batch, tokens, hidden_size).
    """
    features = hybrid_stem(images, a.dtype, **a.resnet) if a.resnet else images
    stem = layers.PatchEmbedding(a.hidden_size, a.patch_size, name="embedding", dtype=a.dtype)
    grid = stem(features)
    x = layers.FlattenGrid(name="tokens", dtype=a.dtype)(grid)
    for name in ("class_token", "distillation_token")[: a.class_tokens][::-1]:
        x = layers.ClassToken(name=name, dtype=a.dtype)(x)
    if a.position_placement == "stem":
        x = _positions(grid, a)(x)
    if a.register_tokens:
        registers = {"num_tokens": a.register_tokens, "start": a.class_tokens}
        x = layers.LearnedTokens(**registers, name="register_tokens", dtype=a.dtype)(x)
    if a.dropout_rate > 0:
        x = layers.Dropout(a.dropout_rate, name="dropout", dtype=a.dtype)(x)
    return grid, x


def _positions(grid, a, name="position_embedding"):
    """Returns the layer that adds position embeddings, or a function that adds none."""
    kind = POSITION_EMBEDDINGS.get(a.position_embedding)
    if kind is None:
        return lambda tokens: tokens
    return kind(grid.shape[1:3], a.class_tokens, name=name, dtype=a.dtype)


def encode(
    grid: Tensor, x: Tensor, a: SimpleNamespace
) -> tuple[list[Callable], list[tuple[Tensor, Tensor]]]:
    """Equations 2 and 3. Returns the blocks, and the tokens before and after each of them.

    The tokens are a list of a pair for each block, (batch, tokens, hidden_size) each.
    """
    shared = _positions(grid, a) if a.position_placement == "shared" else None
    blocks, tokens = [], []
    for index in range(a.num_layers):
        if a.position_placement == "every":
            x = _positions(grid, a, f"position_embedding_{index:02d}")(x)
        elif shared is not None:
            x = shared(x)
        blocks.append(_block(index, grid, a))
        tokens.append((x, blocks[-1](x, **a.rotation)))
        x = tokens[-1][1]
    return blocks, tokens


def _block(index, grid, a):
    kind = layers.EncoderBlock
    if a.attention == "axial":
        kind = partial(layers.AxialEncoderBlock, grid.shape[1:3])
    fused = "plain" if a.flash_attention is False else "fused"
    return kind(
        num_heads=a.num_heads,
        mlp_dim=a.mlp_dim,
        attention_type="relative" if a.position_embedding == "relative" else fused,
        dropout_rate=a.dropout_rate,
        attention_dropout_rate=a.attention_dropout_rate,
        stochastic_depth_rate=a.stochastic_depth_rate * index / max(a.num_layers - 1, 1),
        mlp_type=a.mlp,
        gelu=a.gelu,
        layer_norm_epsilon=a.layer_norm_epsilon,
        remat=a.remat,
        name=f"encoder_block_{index:02d}",
        dtype=a.dtype,
    )


def class_tokens_alone(block: Callable, tokens: Tensor, a: SimpleNamespace) -> Tensor:
    """The shortcut of the last block: its output for one or two class tokens alone.

    Skips the other tokens' queries and MLP, which equation 4 does not read; the result is the same.
    """
    return block(tokens[:, : a.class_tokens], context=tokens, **a.rotation)


def pool(encoded: Tensor, a: SimpleNamespace) -> Tensor:
    """Returns what the head reads of the encoder's tokens: equation 4 for the class token.

    (batch, hidden_size), twice that for "token_gap" and "distilled", and for "unpooled" (batch,
    patches, hidden_size).
    """
    # A slice and a reshape: TFLite's delegates do not take an index that drops an axis.
    if a.classifier in ("token", "distilled"):
        count = a.class_tokens
        first = encoded if encoded.shape[1] == count else encoded[:, :count]
        return ops.reshape(first, (-1, count * a.hidden_size))
    start = a.class_tokens + a.register_tokens
    patches = encoded[:, start:] if start else encoded
    if a.classifier == "unpooled":
        return patches
    if a.classifier == "map":
        sizes = (a.num_heads, a.mlp_dim, a.gelu, a.layer_norm_epsilon)
        return layers.MAPHead(*sizes, name="pool", dtype=a.dtype)(patches)
    mean = keras.layers.GlobalAveragePooling1D("channels_last", name="pool", dtype=a.dtype)
    if a.classifier == "gap":
        return mean(patches)
    class_token = ops.reshape(encoded[:, :1], (-1, a.hidden_size))
    return ops.concatenate([class_token, mean(patches)], axis=-1)


def head(a: SimpleNamespace) -> Callable[[Tensor], dict[str, Tensor]]:
    """Returns the function from pooled tokens to the endpoints "representation" and "logits"."""
    classify = classification_head(a.num_classes, a.head_bias_init, a.classifier == "distilled")
    if not a.representation_size:
        return classify
    options = {"kernel_initializer": VarianceScaling(), "name": "pre_logits", "dtype": a.dtype}
    hidden = keras.layers.Dense(a.representation_size, "tanh", **options)
    return lambda pooled: classify(hidden(pooled))
