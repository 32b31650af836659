"""Masked patch prediction, the paper's self-supervision (section 4.6 and appendix B.1.2)."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.patch_embedding import cut_patches
from keras_vit.models.image_model import ImageModel, require_kind
from keras_vit.models.masked_patch_targets import (
    TARGETS,
    patch_losses,
    units_of,
)
from keras_vit.models.patch_corruption import PatchCorruption
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchPrediction(ImageModel):
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
        model: a `keras_vit.VisionTransformer`, whose weights are trained. Its head
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
        model: VisionTransformer,
        target: str = "mean_color",
        corruption_rate: float = 0.5,
        seed: int | None = None,
        name: str = "masked_patch_prediction",
        trainable: bool = True,
    ):
        require_one_of("target", target, TARGETS)
        require_kind(model, VisionTransformer, "a keras_vit.VisionTransformer")
        if model.input.shape[-1] != 3:
            raise ValueError(
                "The targets are colors: expected a model of three channels. Received: "
                f"in_channels={model.input.shape[-1]}"
            )
        size, (height, width) = model.token_stride, model.input.shape[1:3]
        if model.arguments["resnet"] and (height % size or width % size):
            raise ValueError(
                f"A token of this hybrid stands for {size} x {size} pixels: expected an image size "
                f"that is a multiple of them. Received: image_size=({height}, {width})"
            )
        policy = model.get_layer("embedding").dtype_policy
        stem, encoded = model.endpoints["stem"], model.endpoints["encoded"]
        corrupt = PatchCorruption(corruption_rate, seed, dtype=policy, name="corruption")
        corrupted, positions = corrupt(stem)
        tokens = keras.Model(stem, encoded, name="encoder")(corrupted)
        places = (positions + model.num_prefix_tokens)[..., None]
        tokens = ops.take_along_axis(tokens, places, axis=1)
        predictions = keras.layers.Dense(
            units_of(target, size), kernel_initializer="zeros", dtype="float32", name="prediction"
        )(tokens)
        patches = cut_patches(model.input, model.grid_size, size)
        losses = patch_losses(target, patches, positions, predictions)
        super().__init__(
            model.input,
            {"positions": positions, "predictions": predictions, "losses": losses},
            {"target": target, "corruption_rate": corruption_rate, "seed": seed},
            model.dtype_policy,
            name,
            trainable,
        )
        self._record.encoder = model

    @property
    def encoder(self) -> VisionTransformer:
        """The `VisionTransformer` that is trained."""
        return self._record.encoder

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

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["dtype"]  # it is the encoder's
        return {"model": keras.saving.serialize_keras_object(self.encoder), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict | None = None) -> keras.Model:
        model = keras.saving.deserialize_keras_object(config["model"], custom_objects)
        return super().from_config({**config, "model": model}, custom_objects)
