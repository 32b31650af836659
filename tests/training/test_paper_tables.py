"""The paper's tables agree with each other."""

import numpy as np
import pytest

from keras_vit.training import paper_tables


def test_every_cell_is_there():
    assert sum(map(len, paper_tables.TABLE_2.values())) == 4 * 7
    assert sum(map(len, paper_tables.TABLE_5.values())) == 2 * 4 * 6 + 5 * 6
    assert len(paper_tables.TABLE_6) == 18 and len(paper_tables.TABLE_7) == 4
    assert len(paper_tables.TABLE_8) == 8 and len(paper_tables.VTAB_TASKS) == 19


def test_each_model_and_dataset_has_one_row():
    pairs = [(model, row.dataset) for row in paper_tables.TABLE_3 for model in row.models]
    assert len(pairs) == len(set(pairs)) == 23


@pytest.mark.parametrize(
    "model, epochs", [("ViT-B/32", 7), ("ViT-B/16", 7), ("ViT-L/32", 7), ("ViT-L/16", 14)]
)
def test_tables_5_and_6_share_the_models_pre_trained_on_jft(model, epochs):
    assert paper_tables.TABLE_5[model, "jft"] == paper_tables.TABLE_6[model, epochs]


@pytest.mark.parametrize("model", ["BiT-R50x1", "BiT-R152x2"])
def test_table_7_shows_the_adam_runs_of_table_6(model):
    for name, accuracy in paper_tables.TABLE_7[model, "adam"].items():
        assert accuracy == paper_tables.TABLE_6[model, 7][name]


@pytest.mark.parametrize(
    "key, average",
    [
        (("BiT-R50x1", "adam"), 89.33),
        (("BiT-R50x1", "sgd"), 88.79),
        (("BiT-R152x2", "adam"), 94.01),
        (("BiT-R152x2", "sgd"), 93.72),
    ],
)
def test_averages_of_table_7(key, average):
    assert np.mean(list(paper_tables.TABLE_7[key].values())) == pytest.approx(average, abs=0.0051)
