"""The strengths of AugReg as data ("How to train your ViT?", Steiner et al., 2021)."""

from typing import NamedTuple


class Strength(NamedTuple):
    """One strength: MixUp's beta parameter and RandAugment's (n, m)."""

    mixup_p: float
    randaugment: tuple[int, int] | None


STRENGTHS = {
    "none": Strength(0.0, None),
    "light1": Strength(0.0, (2, 0)),
    "light2": Strength(0.2, (2, 10)),
    "medium1": Strength(0.2, (2, 15)),
    "medium2": Strength(0.5, (2, 15)),
    "strong1": Strength(0.5, (2, 20)),
    "strong2": Strength(0.8, (2, 20)),
}

# The strength that AugReg chose for a model, by data set; "" is any other model.
CHOICES = {
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
