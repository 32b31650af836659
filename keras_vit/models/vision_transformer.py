"""The Vision Transformer (section 3.1)."""

from numbers import Real

import keras

from keras_vit.layers import (
    AxialEncoderBlock,
    ClassToken,
    Dropout,
    EncoderBlock,
    FirstToken,
    FlattenGrid,
    LayerNormalization,
    MAPHead,
    PatchEmbedding,
)
from keras_vit.layers.position_embedding import POSITION_EMBEDDINGS
from keras_vit.models.argument_checks import (
    as_height_width,
    as_image_size,
    as_num_classes,
    as_positive_int,
)
from keras_vit.models.hybrid_stem import hybrid_stem
from keras_vit.models.trainability import SavedTrainability

CLASSIFIERS = ("token", "gap", "map", "unpooled")
POSITIONS = ("none", *POSITION_EMBEDDINGS, "relative")
PLACEMENTS = ("stem", "every", "shared")
ATTENTIONS = ("global", "axial")


@keras.saving.register_keras_serializable(package="keras_vit")
class VisionTransformer(SavedTrainability):
    """Patches, class token, position embeddings, encoder, head: equations 1 to 4.

    A functional `keras.Model` from images, (batch, height, width, 3) float32 in
    [-1, 1], to logits, (batch, num_classes) float32, or to the representation,
    (batch, hidden_size), where `num_classes` is None.

    Args:
        image_size: int or (height, width), in pixels.
        patch_size: int, in pixels, or in cells of the feature map of a hybrid.
        hidden_size: int, D of Table 1.
        mlp_dim: int, width of the MLPs' hidden layer.
        num_heads: int, must divide `hidden_size`.
        num_layers: int, blocks of the encoder.
        num_classes: int, or None for a model without head.
        classifier: "token" (the class token), "gap" (the mean of the tokens),
            "map" (multi-head attention pooling) or "unpooled" (every token, with
            the head, if any, applied to each).
        representation_size: int, the hidden tanh layer of the head that
            pre-training uses, or None.
        resnet: None, or {"num_layers": (...), "width_factor": int} for a hybrid.
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

    Raises:
        ValueError: if an argument is out of its range or two contradict.

    Example:

    >>> model = keras_vit.VisionTransformer(
    ...     image_size=32, patch_size=4, hidden_size=64, mlp_dim=128,
    ...     num_heads=4, num_layers=6, num_classes=10)
    >>> model.compile("adamw", keras.losses.CategoricalCrossentropy(from_logits=True))
    """

    def __init__(
        self,
        image_size=224,
        patch_size=16,
        hidden_size=768,
        mlp_dim=3072,
        num_heads=12,
        num_layers=12,
        num_classes=1000,
        classifier="token",
        representation_size=None,
        resnet=None,
        position_embedding="learned_1d",
        position_placement="stem",
        attention="global",
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        gelu="tanh",
        layer_norm_epsilon=1e-6,
        head_bias_init=0.0,
        remat=False,
        name="vision_transformer",
        trainable=True,
        dtype=None,
    ):
        arguments = {
            "image_size": as_image_size(image_size),
            "patch_size": as_positive_int("patch_size", patch_size),
            "hidden_size": as_positive_int("hidden_size", hidden_size),
            "mlp_dim": as_positive_int("mlp_dim", mlp_dim),
            "num_heads": as_positive_int("num_heads", num_heads),
            "num_layers": as_positive_int("num_layers", num_layers),
            "num_classes": as_num_classes(num_classes),
            "classifier": classifier,
            "representation_size": _as_representation_size(representation_size),
            "resnet": _as_resnet(resnet),
            "position_embedding": position_embedding,
            "position_placement": position_placement,
            "attention": attention,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "stochastic_depth_rate": stochastic_depth_rate,
            "gelu": gelu,
            "layer_norm_epsilon": layer_norm_epsilon,
            "head_bias_init": head_bias_init,
            "remat": remat,
        }
        _check(arguments)
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        height, width = as_height_width(image_size)
        images = keras.Input((height, width, 3), dtype="float32", name="images")
        graph = _Graph(arguments, policy).connect(images)
        super().__init__(inputs=images, outputs=graph.output, name=name, trainable=trainable)
        self._follow(policy)
        self._graph = graph

    @property
    def arguments(self):
        """The constructor's arguments, a dict."""
        return self._graph.arguments

    @property
    def grid_size(self):
        """The (rows, columns) of patches."""
        return tuple(self._graph.stem.shape[1:3])

    @property
    def endpoints(self):
        """Every intermediate result, by name, as tensors of the model's graph.

        `keras.Model(model.input, model.endpoints["block_03"])` computes one.
        The encoder's tokens are (batch, tokens, hidden_size); "stem" is
        (batch, rows, columns, hidden_size). Asking for "encoded" computes all
        tokens of the last block, which the logits alone do not need.
        """
        return self._graph.endpoints()

    @property
    def blocks(self):
        """The encoder's blocks, in order."""
        return list(self._graph.blocks)

    def block_inputs(self):
        """Returns the tensors that enter each block, (batch, tokens, hidden_size)."""
        return list(self._graph.block_inputs)

    def any_resolution(self, outputs="output"):
        """Returns the same model, on the same weights, for images of every size.

        Position embeddings are interpolated in the graph, corners aligned, to
        the grid of the image at hand; at the model's own size the result is its
        own. Pixels that do not fill a patch are cropped.

        Args:
            outputs: "output", or the name of an endpoint.

        Raises:
            ValueError: if the model's weights know the grid in another way, as
                relative positions and axial attention do.
        """
        if self.arguments["attention"] == "axial":
            raise ValueError("Axial attention needs one image size: its blocks know the grid.")
        if self.arguments["position_embedding"] == "relative":
            raise ValueError("Relative positions need one image size: their table has its length.")
        images = keras.Input((None, None, 3), dtype="float32", name="images")
        graph = self._graph.reconnect(images)
        result = graph.output if outputs == "output" else graph.endpoints()[outputs]
        return keras.Model(images, result, name=f"{self.name}_any_resolution")

    def get_arguments(self):
        return {
            **self.arguments,
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self._graph.policy),
        }


class _Graph:
    """The layers of a Vision Transformer and how tensors run through them."""

    def __init__(self, arguments, policy):
        self.arguments = arguments
        self.policy = policy
        self.layers = {}

    def connect(self, images):
        self.native = images.shape[1] is not None
        a = self.arguments
        features = images
        if a["resnet"]:
            features = hybrid_stem(images, **a["resnet"], layer=self._layer)
        if self.native and min(features.shape[1:3]) < a["patch_size"]:
            raise ValueError(
                "The image must be at least one patch high and wide. "
                f"Received: image_size={a['image_size']}, patch_size={a['patch_size']}"
            )
        self.stem = self._layer(
            "embedding", PatchEmbedding, hidden_size=a["hidden_size"], patch_size=a["patch_size"]
        )(features)
        if self.native:
            self.grid = tuple(self.stem.shape[1:3])
        self.embedded = self._embed(self.stem)
        self._encode(self.embedded)
        self.output = self._classify(self.block_outputs[-1])
        return self

    def reconnect(self, images):
        other = _Graph(self.arguments, self.policy)
        other.layers = self.layers
        other.grid = self.grid
        return other.connect(images)

    def _layer(self, name, make, dtype=None, **arguments):
        if name not in self.layers:
            self.layers[name] = make(**arguments, dtype=dtype or self.policy, name=name)
        return self.layers[name]

    def _position(self, tokens, name):
        a = self.arguments
        layer = self._layer(
            name,
            POSITION_EMBEDDINGS[a["position_embedding"]],
            grid_size=self.grid,
            class_token=a["classifier"] == "token",
        )
        return layer(tokens) if self.native else layer(tokens, stem=self.stem)

    def _embed(self, stem):
        a = self.arguments
        tokens = self._layer("tokens", FlattenGrid)(stem)
        if a["classifier"] == "token":
            tokens = self._layer("class_token", ClassToken)(tokens)
        if self._adds_positions and a["position_placement"] == "stem":
            tokens = self._position(tokens, "position_embedding")
        if a["dropout_rate"] > 0:
            tokens = self._layer("dropout", Dropout, rate=a["dropout_rate"])(tokens)
        return tokens

    @property
    def _adds_positions(self):
        return self.arguments["position_embedding"] in POSITION_EMBEDDINGS

    def _block(self, index):
        a = self.arguments
        shared = {
            "num_heads": a["num_heads"],
            "mlp_dim": a["mlp_dim"],
            "dropout_rate": a["dropout_rate"],
            "attention_dropout_rate": a["attention_dropout_rate"],
            "stochastic_depth_rate": a["stochastic_depth_rate"]
            * index
            / max(a["num_layers"] - 1, 1),
            "gelu": a["gelu"],
            "layer_norm_epsilon": a["layer_norm_epsilon"],
            "relative_positions": a["position_embedding"] == "relative",
            "remat": a["remat"],
        }
        name = f"encoder_block_{index:02d}"
        if a["attention"] == "axial":
            return self._layer(name, AxialEncoderBlock, grid_size=self.grid, **shared)
        return self._layer(name, EncoderBlock, **shared)

    def _encode(self, tokens):
        a = self.arguments
        self.blocks, self.block_inputs, self.block_outputs = [], [], []
        only_first = a["classifier"] == "token"
        for index in range(a["num_layers"]):
            if self._adds_positions and a["position_placement"] == "every":
                tokens = self._position(tokens, f"position_embedding_{index:02d}")
            elif self._adds_positions and a["position_placement"] == "shared":
                tokens = self._position(tokens, "position_embedding")
            block = self._block(index)
            self.blocks.append(block)
            self.block_inputs.append(tokens)
            if index == a["num_layers"] - 1 and only_first:
                tokens = block(tokens, first_token_only=True)
            else:
                tokens = block(tokens)
            self.block_outputs.append(tokens)

    def _norm(self):
        return self._layer(
            "encoder_norm", LayerNormalization, epsilon=self.arguments["layer_norm_epsilon"]
        )

    def _classify(self, last):
        a = self.arguments
        x = self._norm()(last)
        if a["classifier"] == "token":
            x = self._layer("pool", FirstToken)(x)
        elif a["classifier"] == "gap":
            x = self._layer("pool", keras.layers.GlobalAveragePooling1D)(x)
        elif a["classifier"] == "map":
            x = self._layer(
                "pool",
                MAPHead,
                num_heads=a["num_heads"],
                mlp_dim=a["mlp_dim"],
                gelu=a["gelu"],
                layer_norm_epsilon=a["layer_norm_epsilon"],
            )(x)
        if a["representation_size"]:
            x = self._layer(
                "pre_logits",
                keras.layers.Dense,
                units=a["representation_size"],
                activation="tanh",
                kernel_initializer="lecun_normal",
            )(x)
        self.representation = self._layer("representation", keras.layers.Identity, dtype="float32")(
            x
        )
        if a["num_classes"] is None:
            return self.representation
        return self._layer(
            "head",
            keras.layers.Dense,
            units=a["num_classes"],
            kernel_initializer="zeros",
            bias_initializer=keras.initializers.Constant(a["head_bias_init"]),
            dtype="float32",
        )(self.representation)

    def endpoints(self):
        last = self.block_outputs[-1]
        if self.arguments["classifier"] == "token":
            last = self.blocks[-1](self.block_inputs[-1])
        outputs = [*self.block_outputs[:-1], last]
        named = {"stem": self.stem, "embedded": self.embedded}
        named.update({f"block_{i:02d}": tensor for i, tensor in enumerate(outputs)})
        named.update({"encoded": self._norm()(last), "representation": self.representation})
        if self.arguments["num_classes"] is not None:
            named["logits"] = self.output
        return named


def _as_resnet(resnet):
    if resnet is None:
        return None
    known = {"num_layers", "width_factor"}
    if set(resnet) - known or "num_layers" not in resnet:
        raise ValueError(
            '`resnet` must be {"num_layers": (...), "width_factor": int}. '
            f"Received: resnet={resnet}"
        )
    return {
        "num_layers": tuple(as_positive_int("num_layers", n) for n in resnet["num_layers"]),
        "width_factor": resnet.get("width_factor", 1),
    }


def _as_representation_size(representation_size):
    if representation_size is None:
        return None
    return as_positive_int("representation_size", representation_size)


def _check(arguments):
    choices = {
        "classifier": CLASSIFIERS,
        "position_embedding": POSITIONS,
        "position_placement": PLACEMENTS,
        "attention": ATTENTIONS,
    }
    for name, allowed in choices.items():
        if arguments[name] not in allowed:
            raise ValueError(
                f"`{name}` must be one of {allowed}. Received: {name}={arguments[name]!r}"
            )
    epsilon = arguments["layer_norm_epsilon"]
    if not isinstance(epsilon, Real) or not epsilon > 0:
        raise ValueError(
            "`layer_norm_epsilon` must be a positive number. "
            f"Received: layer_norm_epsilon={epsilon!r}"
        )
    if arguments["hidden_size"] % arguments["num_heads"]:
        raise ValueError(
            "`hidden_size` must be a multiple of `num_heads`. Received: "
            f"hidden_size={arguments['hidden_size']}, num_heads={arguments['num_heads']}"
        )
    if arguments["attention"] == "axial" and arguments["classifier"] == "token":
        raise ValueError(
            'Axial attention has no class token: use classifier="gap", "map" or "unpooled". '
            'Received: classifier="token"'
        )
