"""Table 3: hyper-parameters of pre-training."""

from typing import NamedTuple


class PreTraining(NamedTuple):
    """A row of Table 3.

    Attributes:
        models: names that share the row.
        dataset: `"jft"`, `"imagenet21k"` or `"imagenet2012"`.
        epochs: the lengths that were run.
        base_lr, schedule, weight_decay, dropout: as in the table.
        clip_norm: largest global gradient norm; stated for ImageNet only, 0 elsewhere.
        head_bias: initial bias of the head, near `-log(classes)` for the sigmoid loss.
    """

    models: tuple[str, ...]
    dataset: str
    epochs: tuple[int, ...]
    base_lr: float
    schedule: str
    weight_decay: float
    dropout: float
    clip_norm: float = 0.0
    head_bias: float = -10.0


VISION_TRANSFORMERS = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")

# Pre-training with Adam (0.9, 0.999).
TABLE_3 = (
    PreTraining(("ViT-B/16", "ViT-B/32"), "jft", (7,), 8e-4, "linear", 0.1, 0.0),
    PreTraining(("ViT-L/32",), "jft", (7,), 6e-4, "linear", 0.1, 0.0),
    PreTraining(("ViT-L/16",), "jft", (7, 14), 4e-4, "linear", 0.1, 0.0),
    PreTraining(("ViT-H/14",), "jft", (14,), 3e-4, "linear", 0.1, 0.0),
    PreTraining(("BiT-R50x1", "BiT-R50x2"), "jft", (7,), 1e-3, "linear", 0.1, 0.0),
    PreTraining(("BiT-R101x1",), "jft", (7,), 8e-4, "linear", 0.1, 0.0),
    PreTraining(("BiT-R152x1", "BiT-R152x2"), "jft", (7,), 6e-4, "linear", 0.1, 0.0),
    PreTraining(("R50+ViT-B/16", "R50+ViT-B/32"), "jft", (7,), 8e-4, "linear", 0.1, 0.0),
    PreTraining(("R50+ViT-L/32",), "jft", (7,), 2e-4, "linear", 0.1, 0.0),
    PreTraining(("R50+ViT-L/16",), "jft", (7, 14), 4e-4, "linear", 0.1, 0.0),
    PreTraining(("ViT-B/16", "ViT-B/32"), "imagenet21k", (90,), 1e-3, "linear", 0.03, 0.1),
    PreTraining(("ViT-L/16", "ViT-L/32"), "imagenet21k", (30, 90), 1e-3, "linear", 0.03, 0.1),
    PreTraining(VISION_TRANSFORMERS, "imagenet2012", (300,), 3e-3, "cosine", 0.3, 0.1, 1.0, -6.9),
)
TABLE_3_BATCH_SIZE = 4096
TABLE_3_WARMUP_STEPS = 10_000
TABLE_3_IMAGE_SIZE = 224
