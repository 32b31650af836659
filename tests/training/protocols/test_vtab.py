"""The paper's tables agree with each other, and with the means of VTAB on those of Table 9."""

import pytest

from keras_vit.training import paper_tables
from keras_vit.training.paper_tables import TABLE_2, TABLE_9, VTAB_TASKS, MeanDeviation
from keras_vit.training.protocols import vtab


def test_means_of_table_9():
    for key, expected in (
        (("ViT-H/14", "jft"), [86.69, 87.00, 65.03, 77.63]),
        (("ViT-L/16", "jft"), [85.56, 86.72, 62.96, 76.29]),
        (("ViT-L/16", "imagenet21k"), [83.27, 84.65, 57.50, 72.71]),
    ):
        means = vtab.aggregate({task: [value] for task, value in TABLE_9[key].items()})
        found = [means[name].mean for name in ("Natural", "Specialized", "Structured", vtab.ALL)]
        assert found == pytest.approx(expected, abs=0.0051)
        assert found[-1] == pytest.approx(TABLE_2[key]["vtab"][0], abs=0.011)


def test_deviation_is_that_of_the_means_of_the_runs():
    accuracies = {task: [50.0, 52.0, 54.0] for task in VTAB_TASKS}
    # A task that varies the other way cancels.
    accuracies["Caltech101"], accuracies["Pets"] = [54.0, 52.0, 50.0], [54.0, 52.0, 50.0]
    means = vtab.aggregate(accuracies)
    assert means["Specialized"].deviation == pytest.approx(2.0)
    assert means["Natural"].deviation == pytest.approx(2.0 * 3 / 7)
    assert means[vtab.ALL] == pytest.approx((52.0, 2.0 * 15 / 19))
    # The deviation is the sample one, and one run has none.
    result = MeanDeviation.of([0.80, 0.81, 0.82])
    assert result == pytest.approx((0.81, 0.01))
    assert str(result.percent) == "81.00 ± 1.00"
    assert str(MeanDeviation.of([0.5, 0.5]).percent) == "50.00 ± 0.00"
    assert MeanDeviation.of([0.5]) == (0.5, None)
    assert str(MeanDeviation.of([0.5]).percent) == "50.00"


def test_table_and_figure_show_the_paper_beside_and_count_absent_tasks():
    accuracies = {task: [1.0, 2.0] for task in VTAB_TASKS if task != "DMLab"}
    table = vtab.comparison("ours", accuracies)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Caltech101"] == ("1.50 ± 0.71", "95.3", "95.4", "90.8")
    assert rows["DMLab"] == ("–", "53.1", "49.7", "41.9")
    assert rows["Structured mean"] == ("1.50 ± 0.71 (7 of 8)", "65.03", "62.96", "57.50")
    assert rows[vtab.ALL][1:] == ("77.63 ± 0.23", "76.28 ± 0.46", "72.72 ± 0.21")
    assert len(rows) == 23
    rows = {row[0]: row[1] for row in vtab.comparison("few", {"Pets": [90.0], "SVHN": [80.0]}).rows}
    assert (rows["Natural mean"], rows["Specialized mean"]) == ("85.00 (2 of 7)", "–")
    assert rows[vtab.ALL] == "85.00 (2 of 19)"
    assert "| Caltech101 | 1.50 ± 0.71 | 95.3 | 95.4 | 90.8 |" in table.markdown()
    # The figure pales what is not whole, and its legend covers no bar.
    figure = vtab.group_figure("ours", {task: [50.0] for task in accuracies})
    (axes,) = figure.axes
    ours = axes.patches[:4]
    assert [bar.get_alpha() for bar in ours] == [1.0, 1.0, 0.4, 0.4]
    assert [bar.get_height() for bar in ours] == [50.0] * 4
    figure.draw_without_rendering()
    (legend,) = figure.legends or [axes.get_legend()]
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y1


def test_every_cell_is_there_once():
    assert sum(map(len, TABLE_2.values())) == 4 * 7
    assert sum(map(len, paper_tables.TABLE_5.values())) == 2 * 4 * 6 + 5 * 6
    assert len(paper_tables.TABLE_6) == 18
    assert len(paper_tables.TABLE_8) == 8 and len(VTAB_TASKS) == 19
    pairs = [(model, row.dataset) for row in paper_tables.TABLE_3 for model in row.models]
    assert len(pairs) == len(set(pairs)) == 23
    # The models pre-trained on JFT are in both.
    for model, epochs in {"B/32": 7, "B/16": 7, "L/32": 7, "L/16": 14}.items():
        shared = paper_tables.TABLE_5[f"ViT-{model}", "jft"]
        assert shared == paper_tables.TABLE_6[f"ViT-{model}", epochs]
