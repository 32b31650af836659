"""The strengths of AugReg as data ("How to train your ViT?", Steiner et al., 2021)."""

# The operations of each strength, weakest first: RandAugment's (n, m), and mixup's p.
STRENGTHS = {
    "none": "",
    "light1": "randaugment(2, 0)",
    "light2": "randaugment(2, 10)|mixup(0.2)",
    "medium1": "randaugment(2, 15)|mixup(0.2)",
    "medium2": "randaugment(2, 15)|mixup(0.5)",
    "strong1": "randaugment(2, 20)|mixup(0.5)",
    "strong2": "randaugment(2, 20)|mixup(0.8)",
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
