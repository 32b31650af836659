"""Axial attention: accuracy over compute and over speed (Figure 12, appendix D.5).

`--config=training/configs/ablation_axial.py:CELL[,SCALE]`; all cells with their figure:
`python -m training ablation axial --workdir=DIR`.
"""

from training.configs import ablation_base

TITLE = "Axial attention (Figure 12)"

_SMALL = {
    "resnet": {"name": "BiT-R50x1", "image_size": 32, "num_layers": (1, 1, 1)},
    "vit_8": {**ablation_base.SMALL_MODEL, "patch_size": 8},
    "vit_4": {**ablation_base.SMALL_MODEL, "patch_size": 4},
    "axial_8": {
        **ablation_base.SMALL_MODEL,
        "patch_size": 8,
        "attention": "axial",
        "classifier": "gap",
    },
    "axial_4": {
        **ablation_base.SMALL_MODEL,
        "patch_size": 4,
        "attention": "axial",
        "classifier": "gap",
    },
}
_PAPER = {
    "vit_32": {"name": "ViT-B/32"},
    "vit_16": {"name": "ViT-B/16"},
    "axial_32": {"name": "Axial-ViT-B/32"},
    "axial_16": {"name": "Axial-ViT-B/16"},
}


def cells(scale):
    """Returns {cell: config}."""
    result = {}
    for name, model in (_SMALL if scale == "small" else _PAPER).items():
        config = ablation_base.base_config(scale)
        if scale == "small":
            config.model = dict(model)
        else:
            config.model.update(model)
        result[name] = config
    return result


def get_config(arg):
    """Returns the config of a cell."""
    return ablation_base.cell_of(cells, arg)
