"""Position embeddings: kind and placement (Table 8, appendix D.3).

`--config=training/configs/ablation_position.py:CELL[,SCALE]`; all cells with their figure:
`python -m training ablation position --workdir=DIR`.
"""

from training.configs import ablation_base

TITLE = "Position embeddings (Table 8)"

# Five-shot accuracy on ImageNet of ViT-B/16, by kind and placement.
PAPER = {
    "none": 0.61382,
    "1d_stem": 0.64206,
    "1d_every": 0.63964,
    "1d_shared": 0.64292,
    "2d_stem": 0.64001,
    "2d_every": 0.64046,
    "2d_shared": 0.64022,
    "relative": 0.64032,
}
_KINDS = {"1d": "learned_1d", "2d": "learned_2d", "none": "none", "relative": "relative"}


def cells(scale):
    """Returns {cell: config}, in the order of the table."""
    result = {}
    for name in PAPER:
        kind, _, placement = name.partition("_")
        result[name] = ablation_base.change(
            ablation_base.base_config(scale),
            model={"position_embedding": _KINDS[kind], "position_placement": placement or "stem"},
        )
    return result


def get_config(arg):
    """Returns the config of a cell."""
    return ablation_base.cell_of(cells, arg)
