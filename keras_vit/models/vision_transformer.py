"""The Vision Transformer (section 3.1)."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from keras_vit import layers
from keras_vit.initializers import VarianceScaling
from keras_vit.layers.map_head_and_classifier import classification_head
from keras_vit.layers.positions_2d_and_sincos import POSITION_EMBEDDINGS
from keras_vit.models.argument_ranges import WITH_CLASS_TOKEN, as_height_width, checked
from keras_vit.models.encoder_views import EncoderViews
from keras_vit.models.resnets import hybrid_stem
from keras_vit.type_hints import ImageSize, Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class VisionTransformer(EncoderViews):
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
            (multi-head attention pooling) or "unpooled" (every token, with the head, if any,
            applied to each).
        representation_size: int, the hidden tanh layer of the head that pre-training uses, or None.
        resnet: None, or {"num_layers": (...), "width_factor": int} for a hybrid.
        register_tokens: int, learned tokens without position after the class token, which no
            pooling and no head reads (Darcet et al., 2023); 4 in DINOv2's models with registers.
        position_embedding: "none", "learned_1d", "learned_2d", "sincos_2d" or
            "relative" (appendix D.3).
        position_placement: "stem" (added once), "every" (another table before
            every block) or "shared" (the same table before every block).
        attention: "global", or "axial" for Axial-ViT (appendix D.5).
        dropout_rate: float, dropout after the position embedding, after the
            projections of attention and after both dense layers of every MLP.
        attention_dropout_rate: float, dropout of the attention probabilities.
        stochastic_depth_rate: float, the last block's probability of being
            skipped; it grows linearly from 0 at the first block.
        gelu: "tanh" (the original's approximation) or "erf".
        layer_norm_epsilon: float.
        head_bias_init: float, the initial bias of the head; its kernel is zero.
        remat: bool, whether training recomputes the activations inside each
            block rather than keep them.
        flash_attention: bool, whether cuDNN's fused kernel computes attention where JAX has it: on
            NVIDIA's GPUs, in 16 bits. Elsewhere, and where something needs the probabilities,
            attention is computed plainly. Its speed has not been measured.
        in_channels: int, of the images. Checkpoints of color images are converted: see
            `keras_vit.checkpoints.resized_positions_and_patches`.

    Raises:
        ValueError: if an argument is out of its range or two contradict.

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
        gelu: str = "tanh",
        layer_norm_epsilon: float = 1e-6,
        head_bias_init: float = 0.0,
        remat: bool = False,
        flash_attention: bool = False,
        in_channels: int = 3,
        name: str = "vision_transformer",
        trainable: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        arguments = checked(locals())
        shape = (*as_height_width(image_size), arguments["in_channels"])
        images = keras.Input(shape, dtype="float32", name="images")
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        endpoints, block_inputs = _forward(images, policy, SimpleNamespace(**arguments))
        super().__init__(images, endpoints, arguments, policy, name, trainable)
        self._record.block_inputs = block_inputs


def _forward(images: Tensor, dtype: keras.DTypePolicy, a: SimpleNamespace):
    """Applies equations 1 to 4 to a Keras tensor, with the constructor's arguments `a`.

    Returns (the endpoints, a dict in this order; the tokens that enter each block, a list).
    """
    features = hybrid_stem(images, dtype, **a.resnet) if a.resnet else images
    embed = layers.PatchEmbedding(a.hidden_size, a.patch_size, name="embedding", dtype=dtype)
    stem = embed(features)
    grid_size = stem.shape[1:3]
    class_token = a.classifier in WITH_CLASS_TOKEN
    placement = a.position_placement if a.position_embedding in POSITION_EMBEDDINGS else None

    def positions(name="position_embedding"):
        embedding = POSITION_EMBEDDINGS[a.position_embedding]
        return embedding(grid_size, class_token, name=name, dtype=dtype)

    x = layers.FlattenGrid(name="tokens", dtype=dtype)(stem)
    if class_token:
        x = layers.ClassToken(name="class_token", dtype=dtype)(x)
    if placement == "stem":
        x = positions()(x)  # equation 1
    if a.register_tokens:
        registers = {"num_tokens": a.register_tokens, "start": int(class_token)}
        x = layers.RegisterTokens(**registers, name="register_tokens", dtype=dtype)(x)
    if a.dropout_rate > 0:
        x = layers.Dropout(a.dropout_rate, name="dropout", dtype=dtype)(x)
    endpoints = {"stem": stem, "embedded": x}

    shared_positions = positions() if placement == "shared" else None
    axial = partial(layers.AxialEncoderBlock, grid_size)
    block_of = axial if a.attention == "axial" else layers.EncoderBlock
    block_inputs = []
    for index in range(a.num_layers):
        if placement == "every":
            x = positions(f"position_embedding_{index:02d}")(x)
        elif shared_positions is not None:
            x = shared_positions(x)
        block_inputs.append(x)
        block = block_of(
            num_heads=a.num_heads,
            mlp_dim=a.mlp_dim,
            dropout_rate=a.dropout_rate,
            attention_dropout_rate=a.attention_dropout_rate,
            stochastic_depth_rate=a.stochastic_depth_rate * index / max(a.num_layers - 1, 1),
            gelu=a.gelu,
            layer_norm_epsilon=a.layer_norm_epsilon,
            relative_positions=a.position_embedding == "relative",
            remat=a.remat,
            flash_attention=a.flash_attention,
            name=f"encoder_block_{index:02d}",
            dtype=dtype,
        )
        x = block(x)  # equations 2 and 3
        endpoints[f"block_{index:02d}"] = x

    norm = layers.LayerNormalization(a.layer_norm_epsilon, name="encoder_norm", dtype=dtype)
    endpoints["encoded"] = x = norm(x)
    start = int(class_token) + a.register_tokens
    patches = x[:, start:] if start else x
    mean = keras.layers.GlobalAveragePooling1D("channels_last", name="pool", dtype=dtype)
    if a.classifier == "token":
        # Equation 4. The last block computes the class token alone.
        y = norm(block(block_inputs[-1][:, :1], context=block_inputs[-1]))
        x = ops.reshape(y, (-1, a.hidden_size))
    elif a.classifier == "token_gap":
        # A slice and a reshape: TFLite's delegates do not take an index that drops an axis.
        y = ops.reshape(x[:, :1], (-1, a.hidden_size))
        x = ops.concatenate([y, mean(patches)], axis=-1)
    elif a.classifier == "gap":
        x = mean(patches)
    elif a.classifier == "map":
        sizes = (a.num_heads, a.mlp_dim, a.gelu, a.layer_norm_epsilon)
        x = layers.MAPHead(*sizes, name="pool", dtype=dtype)(patches)
    else:
        x = patches
    if a.representation_size:
        x = keras.layers.Dense(
            a.representation_size,
            activation="tanh",
            kernel_initializer=VarianceScaling(),
            name="pre_logits",
            dtype=dtype,
        )(x)
    endpoints.update(classification_head(x, a.num_classes, a.head_bias_init))
    return endpoints, block_inputs
