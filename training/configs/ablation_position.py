"""Position embeddings: kind and placement (Table 8, appendix D.3)."""

from keras_vit.training.configs import ablation_base
from keras_vit.training.paper_tables import TABLE_8


def _cell(kind, placement):
    """Returns "1d_stem" for ("learned_1d", "stem"); the kinds of one placement go by themselves."""
    _, learned, dimensions = kind.rpartition("learned_")
    return f"{dimensions}_{placement}" if learned else kind


def _cells(scale):
    """Returns {cell: config}; in the order of the table."""
    return {
        _cell(kind, placement): ablation_base.config_of_model(
            scale, {"position_embedding": kind, "position_placement": placement}
        )
        for kind, placement in TABLE_8
    }


STUDY = ablation_base.Study(
    "Position embeddings (Table 8)",
    _cells,
    paper={_cell(*key): 100 * accuracy for key, accuracy in TABLE_8.items()},
)
get_config = STUDY.get_config
