"""Transformer shape: depth, width, MLP width, patch size and all together (Figure 8).

The paper's base has 8 layers, D = 1024, an MLP of 2048 and patches of 32 pixels; how far each
line goes is known from the figure alone, so the factors here are chosen: depth up to the 64
layers that the text names, the others by what they cost. "all" scales depth, width and MLP.
Heads keep their size.
"""

from keras_vit.training.configs import ablation_base

BASES = {
    "small": {
        "num_layers": 4,
        "hidden_size": 64,
        "mlp_dim": 128,
        "num_heads": 4,
        "patch_size": 8,
    },
    "paper": {
        "num_layers": 8,
        "hidden_size": 1024,
        "mlp_dim": 2048,
        "num_heads": 16,
        "patch_size": 32,
        "representation_size": 1024,
    },
}
LINES = {
    "depth": (0.5, 2, 4, 8),
    "width": (0.5, 2),
    "mlp": (0.5, 2, 4),
    "patch": (0.5, 2),
    "all": (0.5, 2),
}
_SCALED = {
    "depth": ("num_layers",),
    "width": ("hidden_size", "num_heads"),
    "mlp": ("mlp_dim",),
    "all": ("num_layers", "hidden_size", "num_heads", "mlp_dim"),
}


def _shape_of(scale, line, factor):
    shape = dict(BASES[scale])
    if line == "patch":
        # A smaller patch is more compute: the sequence grows.
        shape["patch_size"] = int(shape["patch_size"] / factor)
    else:
        for key in _SCALED[line]:
            shape[key] = int(shape[key] * factor)
        if "representation_size" in shape:
            shape["representation_size"] = shape["hidden_size"]
    return shape


def _cells(scale):
    """Returns {cell: config}; "base" lies on every line, "depth_2" at twice the depth."""
    shapes = {"base": BASES[scale]}
    for line, factors in LINES.items():
        for factor in factors:
            shapes[f"{line}_{factor:g}"] = _shape_of(scale, line, factor)
    return {
        cell: ablation_base.config_of_model(scale, shape, "ViT-B/32")
        for cell, shape in shapes.items()
    }


STUDY = ablation_base.Study("Transformer shape (Figure 8)", _cells)
get_config = STUDY.get_config
