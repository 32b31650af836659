"""The tables of the input, from turns that are made up, and from a few images."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import input
from benchmarks.input import PIXELS, Turn
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


def test_a_host_is_bound_by_its_cores_or_its_copies():
    # 2 ms of CPU an image. A thread copies 10,000 float32 or 100,000 uint8 images a second.
    turns = {
        (0, "float32"): [Turn(1e-4, 1e-4)] * 3,
        (0, "uint8"): [Turn(1e-5, 1e-5)] * 3,
        **{(1, pixels): [Turn(2e-3, 2e-3)] * 3 for pixels in PIXELS},
        **{(2, pixels): [Turn(2e-3, 1e-3)] * 3 for pixels in PIXELS},
    }
    rows = input.rates_of_hosts(turns, [24, 112])
    assert [list(map(str, row.values())) for row in rows] == [
        ["1", "measured", "500", "–", "500", "–"],
        ["2", "measured", "1,000", "–", "1,000", "–"],
        ["24", "model", "10,000", "copies", "12,000", "cores"],
        ["112", "model", "56,000", "cores", "56,000", "cores"],
    ]


@pytest.mark.long
def test_every_number_of_cores_is_measured(images, cells, monkeypatch):
    monkeypatch.setattr(input.os, "sched_getaffinity", lambda _: {0})
    input.input_cores(images, **JPEGS)
    _, _, *rows = cells()
    assert [row[0] for row in rows] == ["1", "112", "224"]
    assert all(float(row[2].replace(",", "")) > 0 for row in rows)


def test_table_3_needs_what_its_models_compute(cells):
    input.table_3_input(chips=1, cores=8, kilobytes=100.0)
    rows = {row[0]: row[1:] for row in cells()}
    # 17.6 GMACs an image, as Table 6 has it: 6 x 17.58e9 x 4096 / 197e12 seconds.
    assert float(rows["ViT-B/16"][0]) == pytest.approx(2193, rel=0.01)
    assert {"ViT-H/14", "R50+ViT-L/16", "BiT-R152x2"} <= rows.keys()
    # A request waits for 50 ms and streams for 1: eight bring 8 / 0.051 images.
    assert rows["one a core"] == ["8", "157", "6,080"]
