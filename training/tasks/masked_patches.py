"""Masked patch prediction (appendix B.1.2): learns from images without their labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from .base import Task

if TYPE_CHECKING:
    import keras


class MaskedPatches(Task):
    """The model predicts patches that it does not see; its output is its loss."""

    chosen_by = "masked.target"
    keys = (
        (chosen_by, "", "mean_color, downsized or pixels of masked patches; empty classifies", {}),
        ("masked.corruption_rate", 0.5, "fraction of patches that is corrupted", {"greatest": 1}),
    )
    unused = (
        ("eval_split", "'': masked patch prediction has no accuracy to evaluate"),
        (
            "loss label_smoothing class_weights lora.rank "
            "freeze.layers freeze.blocks freeze.head_only",
            "no lora.rank, label_smoothing, class_weights, loss or freeze.* beside masked.target",
        ),
        ("distill.teacher", "'': masked patch prediction has no logits to learn"),
        ("optimizer.layer_decay", "1: masked patch prediction trains all weights"),
    )
    no_mixup = (
        "config.masked.target: expected no mixup, as a target is the color of a patch of one image"
    )

    def takes(self, kind: str) -> bool:
        return True

    def model_to_train(
        self, model: keras.Model, config: ConfigDict, num_classes: int
    ) -> keras.Model:
        from keras_vit.models.masked_patch_prediction import MaskedPatchPrediction

        return MaskedPatchPrediction(model, **config.masked.to_dict())

    def losses(self, config: ConfigDict, split: Any) -> Callable[[keras.Model, Any], Any]:
        from keras import ops

        def losses(model, batch):
            by_patch = model(batch["image"], training=True)
            return ops.mean(ops.cast(by_patch, "float32"), axis=-1)

        return losses
