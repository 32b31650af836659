"""The tables of the input, from turns that are made up, and from a few images."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import input
from benchmarks.input import Turn
from benchmarks.libraries.image_pipelines import FLOOR, pipelines

NAMES = [(kind, name) for kind, makers in pipelines().items() for name in makers]
JPEGS = {"batch_size": 4, "batches": 2, "rounds": 1}


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(4):
        image = rng.integers(0, 256, (60, 80, 3)).astype(np.uint8)
        (tmp_path / f"{number}.JPEG").write_bytes(tf.io.encode_jpeg(image).numpy())
    return str(tmp_path)


@pytest.mark.long
def test_the_table_compares_every_pipeline(images, cells, capsys):
    input.compare_pipelines(images, **JPEGS)
    printed = capsys.readouterr().out
    assert "4 images, batches of 4, 224 pixels, 1 rounds" in printed
    _, _, *rows = cells(printed)
    rates, changes = rows[: len(NAMES)], rows[len(NAMES) + 2 :]
    # These images are smaller than the target, so that there is nothing to reduce.
    assert [row[1:] for row in changes] == [["0.00"] * 2] * 3
    assert [row[0] for row in rates] == [": ".join(name) for name in NAMES]
    assert all(float(row[1]) > 0 for row in rates)
    # A row is compared with itself in its own column.
    assert all(float(row[3]) == 1.0 for row in rates if row[0].endswith(FLOOR))


def test_ratios_are_medians_within_rounds():
    turns = {name: [Turn(1.0, 2.0)] * 3 for name in NAMES}
    turns["training", "ours"] = [Turn(2.0, 4.0), Turn(4.0, 8.0), Turn(1.6, 1.0)]
    [row] = [row for row in input.rates(turns) if row["pipeline"] == "training: ours"]
    assert list(row.values())[1:] == ["0", "0", "0.50", "0.50", "0.38 to 0.56"]


def test_a_folder_without_jpegs_is_explained(tmp_path):
    with pytest.raises(input.UsageError, match="Expected JPEGs below"):
        input.compare_pipelines(str(tmp_path))
