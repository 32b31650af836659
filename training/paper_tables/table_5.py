"""Table 5, also Figure 3: Vision Transformers by their pre-training data."""

from training.paper_tables.table_3 import VISION_TRANSFORMERS

_BY_UPSTREAM: dict[str, dict[str, tuple[float, ...]]] = {
    "imagenet2012": {
        "cifar10": (98.13, 97.77, 97.86, 97.94),
        "cifar100": (87.13, 86.31, 86.35, 87.07),
        "imagenet2012": (77.91, 73.38, 76.53, 71.16),
        "imagenet2012_real": (83.57, 79.56, 82.19, 77.83),
        "oxford_flowers102": (89.49, 85.43, 89.66, 86.36),
        "oxford_iiit_pet": (93.81, 92.04, 93.64, 91.35),
    },
    "imagenet21k": {
        "cifar10": (98.95, 98.79, 99.16, 99.13),
        "cifar100": (91.67, 91.97, 93.44, 93.04),
        "imagenet2012": (83.97, 81.28, 85.15, 80.99),
        "imagenet2012_real": (88.35, 86.63, 88.40, 85.65),
        "oxford_flowers102": (99.38, 99.11, 99.61, 99.19),
        "oxford_iiit_pet": (94.43, 93.02, 94.73, 93.09),
    },
    "jft": {
        "cifar10": (99.00, 98.61, 99.38, 99.19, 99.50),
        "cifar100": (91.87, 90.49, 94.04, 92.52, 94.55),
        "imagenet2012": (84.15, 80.73, 87.12, 84.37, 88.04),
        "imagenet2012_real": (88.85, 86.27, 89.99, 88.28, 90.33),
        "oxford_flowers102": (99.56, 99.27, 99.56, 99.45, 99.68),
        "oxford_iiit_pet": (95.80, 93.40, 97.11, 95.83, 97.56),
    },
}
# {(model, pre-training data): {data set: accuracy}}, fine-tuned at 384 pixels.
TABLE_5 = {
    (model, upstream): {name: row[column] for name, row in rows.items() if column < len(row)}
    for upstream, rows in _BY_UPSTREAM.items()
    for column, model in enumerate(VISION_TRANSFORMERS)
    if column < len(rows["cifar10"])
}
