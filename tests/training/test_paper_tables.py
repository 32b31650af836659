"""The paper's tables agree with each other."""

import pytest

from keras_vit.training import paper_tables
from keras_vit.training.paper_tables import MeanDeviation


def test_every_cell_is_there():
    assert sum(map(len, paper_tables.TABLE_2.values())) == 4 * 7
    assert sum(map(len, paper_tables.TABLE_5.values())) == 2 * 4 * 6 + 5 * 6
    assert len(paper_tables.TABLE_6) == 18
    assert len(paper_tables.TABLE_8) == 8 and len(paper_tables.VTAB_TASKS) == 19


def test_each_model_and_dataset_has_one_row():
    pairs = [(model, row.dataset) for row in paper_tables.TABLE_3 for model in row.models]
    assert len(pairs) == len(set(pairs)) == 23


@pytest.mark.parametrize(
    "model, epochs", [("ViT-B/32", 7), ("ViT-B/16", 7), ("ViT-L/32", 7), ("ViT-L/16", 14)]
)
def test_tables_5_and_6_share_the_models_pre_trained_on_jft(model, epochs):
    assert paper_tables.TABLE_5[model, "jft"] == paper_tables.TABLE_6[model, epochs]


def test_the_deviation_is_the_sample_one_and_one_run_has_none():
    result = MeanDeviation.of([0.80, 0.81, 0.82])
    assert result == pytest.approx((0.81, 0.01))
    assert str(result.percent) == "81.00 ± 1.00"
    assert str(MeanDeviation.of([0.5, 0.5]).percent) == "50.00 ± 0.00"
    assert MeanDeviation.of([0.5]) == (0.5, None)
    assert str(MeanDeviation.of([0.5]).percent) == "50.00"
