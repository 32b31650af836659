"""Masked patch prediction, the paper's self-supervision (section 4.6 and appendix B.1.2)."""

import keras
from keras import ops

from keras_vit.models.patch_corruption import PatchCorruption
from keras_vit.models.patch_targets import TARGETS, PatchLoss
from keras_vit.models.token_stride import token_stride
from keras_vit.models.trainability import SavedTrainability
from keras_vit.models.vision_transformer import VisionTransformer


@keras.saving.register_keras_serializable(package="keras_vit")
class TokensAt(keras.layers.Layer):
    """Picks the output tokens of some patches.

    Args:
        prefix: int, tokens before the first patch: 1 with a class token.

    Call arguments:
        tokens: (batch, prefix + patches, channels).
        positions: (batch, picked) int indices of patches.

    Returns:
        (batch, picked, channels).
    """

    def __init__(self, prefix, **kwargs):
        super().__init__(**kwargs)
        self.prefix = prefix

    def call(self, tokens, positions):
        return ops.take_along_axis(tokens, positions[..., None] + self.prefix, axis=1)

    def compute_output_spec(self, tokens, positions):
        shape = (tokens.shape[0], positions.shape[1], tokens.shape[2])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "prefix": self.prefix}


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchPrediction(SavedTrainability):
    """Trains a Vision Transformer to predict patches that it does not see.

    Half of the patch embeddings of every image are corrupted before positions
    are added: 80 % of them become a learned mask embedding, 10 % the embedding
    of another patch of the image, 10 % stay. One dense layer predicts, from the
    encoder's output at each corrupted patch, what the patch was.

    A functional `keras.Model` from images, (batch, height, width, 3) float32 in
    [-1, 1], to the loss of every corrupted patch, (batch, corrupted) float32.
    Their mean is what `fit` minimises; no labels are needed and those given are
    ignored. Afterwards `masked.encoder` is fine-tuned like any other model.

    Args:
        model: a `keras_vit.VisionTransformer`, whose weights are trained. Its head
            and pooling take no part and are not saved.
        target: "mean_color" (the 3-bit mean colour of a patch, 512 classes),
            "downsized" (the 3-bit colours of the patch at 4 x 4 pixels, 16 times
            512 classes) or "pixels" (mean squared error of all pixels).
        corruption_rate: float in (0, 1]; the paper also tried 0.15.
        seed: int or None, the start of the random stream of the corruption.

    Raises:
        ValueError: if an argument is out of its range, if the model is of another class, or
            if the patches of a hybrid do not cover its images evenly.

    Example:

    >>> vit = keras_vit.create_model("ViT-B/16", num_classes=None)
    >>> masked = keras_vit.MaskedPatchPrediction(vit)
    >>> masked.compile(keras.optimizers.AdamW(2e-4))
    >>> masked.fit(images)
    """

    def __init__(
        self,
        model,
        target="mean_color",
        corruption_rate=0.5,
        seed=None,
        name="masked_patch_prediction",
        **kwargs,
    ):
        if target not in TARGETS:
            raise ValueError(f"`target` must be one of {tuple(TARGETS)}. Received: {target!r}")
        if not isinstance(model, VisionTransformer):
            raise ValueError(
                f"`model` must be a keras_vit.VisionTransformer. Received: a {type(model).__name__}"
            )
        patch_size = token_stride(model)
        _check_cover(model, patch_size)
        policy = model.get_layer("embedding").dtype_policy
        stem, encoded = model.endpoints["stem"], model.endpoints["encoded"]
        corrupt = PatchCorruption(corruption_rate, seed, dtype=policy, name="corruption")
        corrupted, positions = corrupt(stem)
        tokens = keras.Model(stem, encoded, name="encoder")(corrupted)
        prefix = 1 if model.arguments["classifier"] == "token" else 0
        tokens = TokensAt(prefix, dtype=policy, name="corrupted_tokens")(tokens, positions)
        predictions = keras.layers.Dense(
            TARGETS[target].units(patch_size),
            kernel_initializer="zeros",
            dtype="float32",
            name="prediction",
        )(tokens)
        compare = PatchLoss(target, model.grid_size, patch_size, name="patch_loss")
        losses = compare(model.input, positions, predictions)
        super().__init__(inputs=model.input, outputs=losses, name=name, **kwargs)
        self._follow(model.dtype_policy)
        self._record = _Record(
            model,
            {"target": target, "corruption_rate": corruption_rate, "seed": seed},
            {"positions": positions, "predictions": predictions, "losses": losses},
        )

    @property
    def encoder(self):
        """The `VisionTransformer` that is trained."""
        return self._record.encoder

    @property
    def arguments(self):
        """The constructor's arguments apart from the model, a dict."""
        return self._record.arguments

    @property
    def endpoints(self):
        """Tensors of the graph by name: "positions", "predictions" and "losses".

        Those of one call belong together:
        `keras.Model(masked.input, masked.endpoints)(images)`.
        """
        return dict(self._record.endpoints)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        by_image = ops.mean(y_pred, axis=-1)
        if sample_weight is None:
            return ops.mean(by_image)
        weights = ops.reshape(ops.cast(sample_weight, by_image.dtype), (-1,))
        return ops.sum(by_image * weights) / ops.sum(weights)

    def get_arguments(self):
        return {
            "model": keras.saving.serialize_keras_object(self.encoder),
            **self.arguments,
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_arguments(cls, arguments, custom_objects=None):
        model = keras.saving.deserialize_keras_object(arguments["model"], custom_objects)
        return cls(**{**arguments, "model": model})


class _Record:
    """What the model remembers, out of reach of Keras's attribute tracking."""

    def __init__(self, encoder, arguments, endpoints):
        self.encoder = encoder
        self.arguments = arguments
        self.endpoints = endpoints


def _check_cover(model, patch_size):
    height, width = model.input.shape[1:3]
    if model.arguments["resnet"] and (height % patch_size or width % patch_size):
        raise ValueError(
            f"A token of this hybrid stands for {patch_size} x {patch_size} pixels: expected an "
            f"image size that is a multiple of them. Received: image_size=({height}, {width})"
        )
