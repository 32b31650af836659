import argparse

import pytest

from benchmarks import input_budget


def test_a_request_waits_and_then_streams():
    chosen = argparse.Namespace(latency=50.0, bandwidth=100.0, kilobytes=100.0)
    # 50 ms and 1 ms for one image.
    assert input_budget.images_per_second(1, chosen) == pytest.approx(1 / 0.051)
    assert input_budget.images_per_second(8, chosen) == pytest.approx(8 / 0.051)


def test_every_model_of_table_3_has_a_row(capsys):
    assert input_budget.main(["--chips=1", "--chip=v5e"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "|" in line]
    rows = {line.split("|")[1].strip(): line for line in lines}
    # 17.6 GMACs an image, as Table 6 has it: 6 x 17.58e9 x 4096 / 197e12 seconds.
    cells = [cell.strip() for cell in rows["ViT-B/16"].split("|")]
    assert float(cells[2]) == pytest.approx(2193, rel=0.01)
    assert {"ViT-H/14", "R50+ViT-L/16", "BiT-R152x2"} <= rows.keys()
