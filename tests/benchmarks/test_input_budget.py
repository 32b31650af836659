import argparse

import pytest

from benchmarks import input_budget, shuffle_mixing


def test_a_request_waits_and_then_streams():
    chosen = argparse.Namespace(latency=50.0, bandwidth=100.0, kilobytes=100.0)
    # 50 ms and 1 ms for one image; 50 ms and 64 ms for a block.
    assert input_budget.images_per_second(1, 1, chosen) == pytest.approx(1 / 0.051)
    assert input_budget.images_per_second(8, 64, chosen) == pytest.approx(8 * 64 / 0.114)


def test_every_model_of_table_3_has_a_row(capsys):
    assert input_budget.main(["--chips=1", "--chip=v5e"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "|" in line]
    rows = {line.split("|")[1].strip(): line for line in lines}
    # 17.6 GMACs an image, as Table 6 has it: 6 x 17.58e9 x 4096 / 197e12 seconds.
    cells = [cell.strip() for cell in rows["ViT-B/16"].split("|")]
    assert float(cells[2]) == pytest.approx(2193, rel=0.01)
    assert {"ViT-H/14", "R50+ViT-L/16", "BiT-R152x2"} <= rows.keys()


def test_mixing_of_a_small_set():
    chosen = argparse.Namespace(examples=100_000, classes=1000, batch_size=128)
    full = shuffle_mixing.mixing("full", 1, chosen)
    blocks = shuffle_mixing.mixing("blocks", 1, chosen)
    assert full[0] == pytest.approx(1, abs=0.02)
    assert full[1] == pytest.approx(0.001, rel=0.4)
    assert full[2] == pytest.approx(1 / 3, rel=0.02)
    # A window has 512 of 6250 blocks, six of a class: some 430 classes, and of each example's class
    # the fifteen others of its block and seven more among 8191.
    assert 0.85 < blocks[0] < 0.97
    assert blocks[1] == pytest.approx(22 / 8191, rel=0.3)
