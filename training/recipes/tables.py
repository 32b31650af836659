"""The recipes of the paper as data: Tables 3 and 4, and the strengths of AugReg."""

from typing import NamedTuple


class PreTraining(NamedTuple):
    """One row of Table 3; batches of 4096, 224 pixels, Adam (0.9, 0.999), 10k warm-up steps.

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


PRE_TRAINING_BATCH = 4096
PRE_TRAINING_WARMUP = 10_000
PRE_TRAINING_IMAGE_SIZE = 224

_VIT = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")

PRE_TRAINING = (
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
    PreTraining(_VIT, "imagenet2012", (300,), 3e-3, "cosine", 0.3, 0.1, 1.0, -6.9),
)


class FineTuning(NamedTuple):
    """One row of Table 4; SGD (momentum 0.9), batches of 512, cosine decay, 384 pixels.

    Attributes:
        steps: number of updates.
        base_lrs: the rates that are swept.
        warmup_steps: of the released code (the paper states none).
        development: share of the training split that the sweep is scored on.
    """

    steps: int
    base_lrs: tuple[float, ...]
    warmup_steps: int
    development: float


FINE_TUNING_BATCH = 512
FINE_TUNING_IMAGE_SIZE = 384
FINE_TUNING_CLIP_NORM = 1.0
FINE_TUNING_MOMENTUM = 0.9

_RATES = (0.001, 0.003, 0.01, 0.03)

FINE_TUNING = {
    "imagenet2012": FineTuning(20_000, (0.003, 0.01, 0.03, 0.06), 500, 0.01),
    "cifar100": FineTuning(10_000, _RATES, 500, 0.02),
    "cifar10": FineTuning(10_000, _RATES, 500, 0.02),
    "oxford_iiit_pet": FineTuning(500, _RATES, 100, 0.1),
    "oxford_flowers102": FineTuning(500, _RATES, 100, 0.1),
    "vtab": FineTuning(2_500, (0.01,), 500, 0.2),
}


class AugReg(NamedTuple):
    """One strength of "How to train your ViT?": MixUp's beta parameter and RandAugment's (n, m)."""

    mixup_p: float
    randaugment: tuple[int, int] | None


AUGREG = {
    "none": AugReg(0.0, None),
    "light1": AugReg(0.0, (2, 0)),
    "light2": AugReg(0.2, (2, 10)),
    "medium1": AugReg(0.2, (2, 15)),
    "medium2": AugReg(0.5, (2, 15)),
    "strong1": AugReg(0.5, (2, 20)),
    "strong2": AugReg(0.8, (2, 20)),
}

# The strength that AugReg chose for a model, by data set; "" is any other model.
AUGREG_CHOICES = {
    "imagenet2012": {"ViT-Ti/16": "light1", "ViT-S/32": "medium1", "": "medium2"},
    "imagenet21k": {
        "ViT-Ti/16": "none",
        "ViT-S/32": "none",
        "ViT-S/16": "light1",
        "ViT-B/32": "light2",
        "ViT-B/16": "light2",
        "": "medium2",
    },
}


def steps(epochs, examples, batch_size):
    """Returns the number of updates in `epochs` passes over `examples` (at least 1)."""
    return max(1, round(epochs * examples / batch_size))


def pre_training(model, dataset, epochs=None):
    """Returns the row of Table 3 for a model and data set, and its number of epochs.

    `epochs=None` takes the longest run of the row.

    Raises:
        ValueError: if the table has no such row.
    """
    for row in PRE_TRAINING:
        if dataset == row.dataset and model in row.models:
            chosen = row.epochs[-1] if epochs is None else epochs
            if chosen not in row.epochs:
                raise ValueError(
                    f"Table 3 trains {model} on {dataset} for "
                    f"{' or '.join(map(str, row.epochs))} epochs. Received: {epochs}."
                )
            return row, chosen
    known = "; ".join(f"{', '.join(row.models)} on {row.dataset}" for row in PRE_TRAINING)
    raise ValueError(f"Table 3 has no row for {model} on {dataset}. Its rows: {known}.")
