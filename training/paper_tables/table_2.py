"""Table 2: comparison with the state of the art."""

# Means and standard deviations of three fine-tuning runs.
TABLE_2: dict[tuple[str, str], dict[str, tuple[float, float | None]]] = {
    ("ViT-H/14", "jft"): {
        "imagenet2012": (88.55, 0.04),
        "imagenet2012_real": (90.72, 0.05),
        "cifar10": (99.50, 0.06),
        "cifar100": (94.55, 0.04),
        "oxford_iiit_pet": (97.56, 0.03),
        "oxford_flowers102": (99.68, 0.02),
        "vtab": (77.63, 0.23),
    },
    ("ViT-L/16", "jft"): {
        "imagenet2012": (87.76, 0.03),
        "imagenet2012_real": (90.54, 0.03),
        "cifar10": (99.42, 0.03),
        "cifar100": (93.90, 0.05),
        "oxford_iiit_pet": (97.32, 0.11),
        "oxford_flowers102": (99.74, 0.00),
        "vtab": (76.28, 0.46),
    },
    ("ViT-L/16", "imagenet21k"): {
        "imagenet2012": (85.30, 0.02),
        "imagenet2012_real": (88.62, 0.05),
        "cifar10": (99.15, 0.03),
        "cifar100": (93.25, 0.05),
        "oxford_iiit_pet": (94.67, 0.15),
        "oxford_flowers102": (99.61, 0.02),
        "vtab": (72.72, 0.21),
    },
    ("BiT-R152x4", "jft"): {
        "imagenet2012": (87.54, 0.02),
        "imagenet2012_real": (90.54, None),
        "cifar10": (99.37, 0.06),
        "cifar100": (93.51, 0.08),
        "oxford_iiit_pet": (96.62, 0.23),
        "oxford_flowers102": (99.63, 0.03),
        "vtab": (76.29, 1.70),
    },
}
