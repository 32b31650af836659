import numpy as np
import pytest
import tensorflow as tf

from benchmarks import input_cores
from benchmarks.input_pipeline import Turn


def test_a_host_is_bound_by_its_cores_or_its_copies():
    # 2 ms of CPU an image. A thread copies 10,000 float32 or 100,000 uint8 images a second.
    turns = {
        (0, "float32"): [Turn(1e-4, 1e-4)] * 3,
        (0, "uint8"): [Turn(1e-5, 1e-5)] * 3,
        **{(1, pixels): [Turn(2e-3, 2e-3)] * 3 for pixels in input_cores.PIXELS},
        **{(2, pixels): [Turn(2e-3, 1e-3)] * 3 for pixels in input_cores.PIXELS},
    }
    table = input_cores.report(turns, [24, 112])
    assert [list(map(str, row)) for row in table.rows] == [
        ["1", "measured", "500", "–", "500", "–"],
        ["2", "measured", "1,000", "–", "1,000", "–"],
        ["24", "model", "10,000", "copies", "12,000", "cores"],
        ["112", "model", "56,000", "cores", "56,000", "cores"],
    ]


@pytest.mark.long
def test_the_command_measures_every_number_of_cores(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(input_cores.os, "sched_getaffinity", lambda _: {0})
    rng = np.random.default_rng(0)
    for number in range(4):
        image = rng.integers(0, 256, (60, 80, 3)).astype(np.uint8)
        (tmp_path / f"{number}.jpg").write_bytes(tf.io.encode_jpeg(image).numpy())
    options = ["--batch_size=4", "--batches=2", "--rounds=1", "--hosts", "112"]
    assert input_cores.main([f"--images={tmp_path}", *options]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert [row[1].strip() for row in rows[2:]] == ["1", "112"]
    assert all(float(row[3].replace(",", "")) > 0 for row in rows[2:])
