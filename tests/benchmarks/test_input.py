"""The tables of the input, from turns that are made up, and from a few images."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import input
from benchmarks.input import FLOOR, pipelines

NAMES = [(kind, name) for kind, makers in pipelines().items() for name in makers]


@pytest.mark.long
def test_the_table_compares_every_pipeline(tmp_path, cells, capsys):
    rng = np.random.default_rng(0)
    for number in range(4):
        image = rng.integers(0, 256, (60, 80, 3)).astype(np.uint8)
        (tmp_path / f"{number}.JPEG").write_bytes(tf.io.encode_jpeg(image).numpy())
    input.compare_pipelines(str(tmp_path), batch_size=4, batches=2, rounds=1)
    printed = capsys.readouterr().out
    assert "4 images, batches of 4, 224 pixels, 1 rounds" in printed
    _, _, *rows = cells(printed)
    rates, changes = rows[: len(NAMES)], rows[len(NAMES) + 2 :]
    # These images are smaller than the target, so that there is nothing to reduce.
    assert [row[1:] for row in changes] == [["0.00"] * 2] * 2
    assert [row[0] for row in rates] == [": ".join(name) for name in NAMES]
    assert all(float(row[1]) > 0 for row in rates)
    # A row is compared with itself in its own column.
    assert all(float(row[2]) == 1.0 for row in rates if row[0].endswith(FLOOR))


def test_ratios_are_medians_within_rounds():
    seconds = dict.fromkeys(NAMES, [1.0] * 3) | {("training", "ours"): [2.0, 4.0, 1.6]}
    [row] = [row for row in input.rates(seconds) if row["pipeline"] == "training: ours"]
    assert list(row.values())[1:] == ["0", "0.50", "0.50", "0.38 to 0.56"]
