"""Tables of papers as data: recipes (Tables 3 and 4) and results (Tables 2, 5, 6, 8 and 9).

Beside them the 19 tasks of VTAB-1k (Zhai et al., 2019; section 4.1 and Table 9), and the strengths
of AugReg ("How to train your ViT?", Steiner et al., 2021).

Accuracies are in percent unless said otherwise. What a table does not give (its "-" and "—") is
absent. Data sets go by the names of `training.data.sets.known_datasets`, VTAB's tasks by the
paper's. Table 1 is `keras_vit.variants`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

# The data sets of pre-training, and the numbers of their images (section 4.1).
UPSTREAM = {"jft": "JFT-300M", "imagenet21k": "ImageNet-21k", "imagenet2012": "ImageNet"}
UPSTREAM_IMAGES = {"jft": 303e6, "imagenet21k": 14e6}
# Penalties of linear classifiers, which publications tried before the authors' code fixed 2^10.
L2_SWEEP = tuple(2.0**power for power in range(-10, 20))

_VISION_TRANSFORMERS = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")
_IMAGENET = ("imagenet2012", "imagenet2012_real")
_SMALL = ("cifar10", "cifar100", "oxford_iiit_pet", "oxford_flowers102")


class MeanDeviation(NamedTuple):
    """A result as the paper prints it, mean ± standard deviation over runs, with two decimals."""

    mean: float
    deviation: float | None = None  # of the sample (divided by n - 1); None of less than two runs

    @classmethod
    def of(cls, values: Iterable[float]) -> "MeanDeviation":
        """Returns the mean and deviation of at least one value."""
        values = list(values)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), deviation)

    @property
    def percent(self) -> "MeanDeviation":
        """The same of values 100 times as large."""
        return MeanDeviation(100 * self.mean, self.deviation and 100 * self.deviation)

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread}"


def _by_column(columns, rows):
    """Returns {key: {column: entry}} of {key: entries}."""
    return {key: dict(zip(columns, row, strict=True)) for key, row in rows.items()}


# Table 2: comparison with the state of the art, {(model, pre-training data): {data set: mean and
# deviation of three fine-tuning runs}}.
_MEANS_AND_DEVIATIONS = {
    ("ViT-H/14", "jft"): (
        (88.55, 90.72, 99.50, 94.55, 97.56, 99.68, 77.63),
        (0.04, 0.05, 0.06, 0.04, 0.03, 0.02, 0.23),
    ),
    ("ViT-L/16", "jft"): (
        (87.76, 90.54, 99.42, 93.90, 97.32, 99.74, 76.28),
        (0.03, 0.03, 0.03, 0.05, 0.11, 0.00, 0.46),
    ),
    ("ViT-L/16", "imagenet21k"): (
        (85.30, 88.62, 99.15, 93.25, 94.67, 99.61, 72.72),
        (0.02, 0.05, 0.03, 0.05, 0.15, 0.02, 0.21),
    ),
    ("BiT-R152x4", "jft"): (
        (87.54, 90.54, 99.37, 93.51, 96.62, 99.63, 76.29),
        (0.02, None, 0.06, 0.08, 0.23, 0.03, 1.70),
    ),
}
TABLE_2: dict[tuple[str, str], dict[str, MeanDeviation]] = _by_column(
    (*_IMAGENET, *_SMALL, "vtab"),
    {key: map(MeanDeviation, *row) for key, row in _MEANS_AND_DEVIATIONS.items()},
)


class PreTraining(NamedTuple):
    """A row of Table 3, of the models that share it, with the lengths in epochs that were run."""

    models: tuple[str, ...]
    dataset: str  # "jft", "imagenet21k" or "imagenet2012"
    epochs: tuple[int, ...]
    base_lr: float
    schedule: str
    weight_decay: float
    dropout: float
    clip_norm: float = 0.0  # largest global gradient norm, which the paper states for ImageNet only
    head_bias: float = -10.0  # initial, near `-log(classes)` for the sigmoid loss


# Table 3: pre-training with Adam (0.9, 0.999).
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
    PreTraining(_VISION_TRANSFORMERS, "imagenet2012", (300,), 3e-3, "cosine", 0.3, 0.1, 1.0, -6.9),
)
TABLE_3_BATCH_SIZE = 4096
TABLE_3_WARMUP_STEPS = 10_000
TABLE_3_IMAGE_SIZE = 224


def row_of_table_3(model: str, dataset: str, epochs: int | None = None) -> tuple[PreTraining, int]:
    """Returns the row of Table 3 for a model and data set, and its number of epochs.

    `epochs=None` takes the longest run of the row. Raises ValueError if there is no such row.
    """
    for row in TABLE_3:
        if dataset == row.dataset and model in row.models:
            chosen = row.epochs[-1] if epochs is None else epochs
            if chosen not in row.epochs:
                raise ValueError(
                    f"Table 3 trains {model} on {dataset} for "
                    f"{' or '.join(map(str, row.epochs))} epochs. Received: {epochs}."
                )
            return row, chosen
    known = "; ".join(f"{', '.join(row.models)} on {row.dataset}" for row in TABLE_3)
    raise ValueError(f"Table 3 has no row for {model} on {dataset}. Its rows: {known}.")


class FineTuning(NamedTuple):
    """A row of Table 4."""

    steps: int
    base_lrs: tuple[float, ...]  # that are swept
    warmup_steps: int  # of the released code; the paper states none


_RATES = (0.001, 0.003, 0.01, 0.03)

# Table 4: fine-tuning with SGD and cosine decay, by data set.
TABLE_4 = {
    "imagenet2012": FineTuning(20_000, (0.003, 0.01, 0.03, 0.06), 500),
    "cifar100": FineTuning(10_000, _RATES, 500),
    "cifar10": FineTuning(10_000, _RATES, 500),
    "oxford_iiit_pet": FineTuning(500, _RATES, 100),
    "oxford_flowers102": FineTuning(500, _RATES, 100),
    "vtab": FineTuning(2_500, (0.01,), 500),
}
TABLE_4_BATCH_SIZE = 512
TABLE_4_IMAGE_SIZE = 384
TABLE_4_CLIP_NORM = 1.0
TABLE_4_MOMENTUM = 0.9

# Table 5, also Figure 3: Vision Transformers by their pre-training data, fine-tuned at 384 pixels,
# {(model, pre-training data): {data set: accuracy}}.
TABLE_5 = _by_column(
    (*_IMAGENET, *_SMALL),
    {
        ("ViT-B/16", "imagenet2012"): (77.91, 83.57, 98.13, 87.13, 93.81, 89.49),
        ("ViT-B/32", "imagenet2012"): (73.38, 79.56, 97.77, 86.31, 92.04, 85.43),
        ("ViT-L/16", "imagenet2012"): (76.53, 82.19, 97.86, 86.35, 93.64, 89.66),
        ("ViT-L/32", "imagenet2012"): (71.16, 77.83, 97.94, 87.07, 91.35, 86.36),
        ("ViT-B/16", "imagenet21k"): (83.97, 88.35, 98.95, 91.67, 94.43, 99.38),
        ("ViT-B/32", "imagenet21k"): (81.28, 86.63, 98.79, 91.97, 93.02, 99.11),
        ("ViT-L/16", "imagenet21k"): (85.15, 88.40, 99.16, 93.44, 94.73, 99.61),
        ("ViT-L/32", "imagenet21k"): (80.99, 85.65, 99.13, 93.04, 93.09, 99.19),
        ("ViT-B/16", "jft"): (84.15, 88.85, 99.00, 91.87, 95.80, 99.56),
        ("ViT-B/32", "jft"): (80.73, 86.27, 98.61, 90.49, 93.40, 99.27),
        ("ViT-L/16", "jft"): (87.12, 89.99, 99.38, 94.04, 97.11, 99.56),
        ("ViT-L/32", "jft"): (84.37, 88.28, 99.19, 92.52, 95.83, 99.45),
        ("ViT-H/14", "jft"): (88.04, 90.33, 99.50, 94.55, 97.56, 99.68),
    },
)

# Table 6, also Figure 5: models pre-trained on JFT at 224 pixels, {(model, epochs): accuracies, and
# exaFLOPs as published in the second version; the first printed about three times as much for the
# Vision Transformers}.
_TABLE_6 = {
    ("ViT-B/32", 7): (80.73, 86.27, 98.61, 90.49, 93.40, 99.27, 55),
    ("ViT-B/16", 7): (84.15, 88.85, 99.00, 91.87, 95.80, 99.56, 224),
    ("ViT-L/32", 7): (84.37, 88.28, 99.19, 92.52, 95.83, 99.45, 196),
    ("ViT-L/16", 7): (86.30, 89.43, 99.38, 93.46, 96.81, 99.66, 783),
    ("ViT-L/16", 14): (87.12, 89.99, 99.38, 94.04, 97.11, 99.56, 1567),
    ("ViT-H/14", 14): (88.08, 90.36, 99.50, 94.71, 97.11, 99.71, 4262),
    ("BiT-R50x1", 7): (77.54, 84.56, 97.67, 86.07, 91.11, 94.26, 50),
    ("BiT-R50x2", 7): (82.12, 87.94, 98.29, 89.20, 93.43, 97.02, 199),
    ("BiT-R101x1", 7): (80.67, 87.07, 98.48, 89.17, 94.08, 95.95, 96),
    ("BiT-R152x1", 7): (81.88, 87.96, 98.82, 90.22, 94.17, 96.94, 141),
    ("BiT-R152x2", 7): (84.97, 89.69, 99.06, 92.05, 95.37, 98.62, 563),
    ("BiT-R152x2", 14): (85.56, 89.89, 99.24, 91.92, 95.75, 98.75, 1126),
    ("BiT-R200x3", 14): (87.22, 90.15, 99.34, 93.53, 96.32, 99.04, 3306),
    ("R50+ViT-B/32", 7): (84.90, 89.15, 99.01, 92.24, 95.75, 99.46, 106),
    ("R50+ViT-B/16", 7): (85.58, 89.65, 99.14, 92.63, 96.65, 99.40, 274),
    ("R50+ViT-L/32", 7): (85.68, 89.04, 99.24, 92.93, 96.97, 99.43, 246),
    ("R50+ViT-L/16", 7): (86.60, 89.72, 99.18, 93.64, 97.03, 99.40, 859),
    ("R50+ViT-L/16", 14): (87.12, 89.76, 99.31, 93.89, 97.36, 99.11, 1668),
}
TABLE_6 = _by_column((*_IMAGENET, *_SMALL), {key: row[:-1] for key, row in _TABLE_6.items()})
TABLE_6_EXAFLOPS = {key: row[-1] for key, row in _TABLE_6.items()}
TABLE_6_MISPRINTS = {
    ("R50+ViT-L/16", 7): "half of the same model's 1668 for 14 epochs is 834",
}

# Table 8: 5-shot linear accuracy on ImageNet of ViT-B/16 by its position embeddings, as a fraction:
# {(embedding, placement): accuracy}.
TABLE_8 = {
    ("none", "stem"): 0.61382,
    ("learned_1d", "stem"): 0.64206,
    ("learned_1d", "every"): 0.63964,
    ("learned_1d", "shared"): 0.64292,
    ("learned_2d", "stem"): 0.64001,
    ("learned_2d", "every"): 0.64046,
    ("learned_2d", "shared"): 0.64022,
    ("relative", "stem"): 0.64032,
}


class VtabTask(NamedTuple):
    """A TFDS builder read with a rule of its own for labels and splits.

    `name` follows `vtab/` in the table of data sets, `title` is the column of Table 9, `group`
    "natural", "specialized" or "structured", `splits` a rule of `vtab_named_splits`; the others are
    those of `DatasetSpec`.
    """

    name: str
    title: str
    group: str
    builder: str
    num_classes: int
    splits: str
    label: str = "label"

    @property
    def flip(self) -> bool:
        """Whether mirroring keeps the label true, our reading of BiT's section 3.3."""
        return self.group != "structured" and self.name != "svhn"


_N, _SP, _ST = "natural", "specialized", "structured"
_RETINOPATHY = "diabetic_retinopathy_detection/btgraham-300"

# In the order of Table 9.
VTAB = (
    VtabTask("caltech101", "Caltech101", _N, "caltech101", 102, "holdout_90"),
    VtabTask("cifar100", "CIFAR-100", _N, "cifar100", 100, "holdout_90"),
    VtabTask("dtd", "DTD", _N, "dtd", 47, "native"),
    VtabTask("oxford_flowers102", "Flowers102", _N, "oxford_flowers102", 102, "native"),
    VtabTask("oxford_iiit_pet", "Pets", _N, "oxford_iiit_pet", 37, "holdout_80"),
    VtabTask("sun397", "Sun397", _N, "sun397/tfds", 397, "native"),
    VtabTask("svhn", "SVHN", _N, "svhn_cropped", 10, "holdout_90"),
    VtabTask("patch_camelyon", "Camelyon", _SP, "patch_camelyon", 2, "native"),
    VtabTask("eurosat", "EuroSAT", _SP, "eurosat/rgb", 10, "60_20_20"),
    VtabTask("resisc45", "Resisc45", _SP, "resisc45", 45, "60_20_20"),
    VtabTask("diabetic_retinopathy", "Retinopathy", _SP, _RETINOPATHY, 5, "native"),
    VtabTask("clevr_count", "Clevr-Count", _ST, "clevr", 8, "clevr", "clevr_count"),
    VtabTask("clevr_distance", "Clevr-Dist", _ST, "clevr", 6, "clevr", "clevr_distance"),
    VtabTask("dmlab", "DMLab", _ST, "dmlab", 6, "native"),
    VtabTask("dsprites_location", "dSpr-Loc", _ST, "dsprites", 16, "80_10_10", "dsprites_location"),
    VtabTask(
        "dsprites_orientation", "dSpr-Ori", _ST, "dsprites", 16, "80_10_10", "dsprites_orientation"
    ),
    VtabTask("kitti_distance", "KITTI-Dist", _ST, "kitti", 4, "native", "kitti_distance"),
    VtabTask("smallnorb_azimuth", "sNORB-Azim", _ST, "smallnorb", 18, "smallnorb", "label_azimuth"),
    VtabTask(
        "smallnorb_elevation", "sNORB-Elev", _ST, "smallnorb", 9, "smallnorb", "label_elevation"
    ),
)

VTAB_GROUPS = {
    group.capitalize(): tuple(task.title for task in VTAB if task.group == group)
    for group in ("natural", "specialized", "structured")
}
VTAB_TASKS = tuple(task for tasks in VTAB_GROUPS.values() for task in tasks)

# Table 9: {(model, pre-training data): {task: accuracy}}.
TABLE_9 = _by_column(
    VTAB_TASKS,
    {
        ("ViT-H/14", "jft"): (
            *(95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9),
            *(83.3, 96.7, 91.4, 76.6),
            *(91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2),
        ),
        ("ViT-L/16", "jft"): (
            *(95.4, 81.9, 74.3, 99.7, 96.7, 63.5, 87.4),
            *(83.6, 96.5, 89.7, 77.1),
            *(86.4, 63.1, 49.7, 74.5, 60.5, 82.2, 36.2, 51.1),
        ),
        ("ViT-L/16", "imagenet21k"): (
            *(90.8, 84.1, 74.1, 99.3, 92.7, 61.0, 80.9),
            *(82.5, 95.6, 85.2, 75.3),
            *(70.3, 56.1, 41.9, 74.7, 64.9, 79.9, 30.5, 41.7),
        ),
    },
)

# The operations of each strength, weakest first: RandAugment's (n, m), and mixup's p.
AUGREG_STRENGTHS = {
    "none": "",
    "light1": "randaugment(2, 0)",
    "light2": "randaugment(2, 10)|mixup(0.2)",
    "medium1": "randaugment(2, 15)|mixup(0.2)",
    "medium2": "randaugment(2, 15)|mixup(0.5)",
    "strong1": "randaugment(2, 20)|mixup(0.5)",
    "strong2": "randaugment(2, 20)|mixup(0.8)",
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
