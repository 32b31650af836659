"""Figure 11 and Table 6: the search for the largest batch, the tables and the figure."""

from unittest import mock

import pytest

from benchmarks import paper
from benchmarks.__main__ import main
from benchmarks.harness.process import ProcessError
from benchmarks.paper import Measurement, search


def device(capacity, rate=float):
    """Returns what a process answers whose memory holds `capacity` images."""

    def ask(batch_size):
        if batch_size > capacity:
            raise ProcessError("killed", out_of_memory=True)
        return {"images_per_second": rate(batch_size)}

    return ask


@pytest.mark.parametrize(
    ("capacity", "best", "largest", "limited"),
    [(1000, 8, 16, False), (12, 8, 8, True), (0, 0, 0, True)],
)
def test_best_batch_need_not_be_the_largest(capacity, best, largest, limited):
    rates, found = search(device(capacity, lambda batch: 100 - (batch - 8) ** 2), max_batch=16)
    measured = Measurement("ViT-B/16", 224, rates, found)
    assert (measured.best_batch, measured.largest_batch, found) == (best, largest, limited)
    with pytest.raises(ProcessError, match="no disk"):  # is no limit
        search(mock.Mock(side_effect=ProcessError("no disk", out_of_memory=False)), 2)


def test_results_are_printed_and_drawn(tmp_path, monkeypatch, capsys, cells):
    def fake(function, task, *, memory):
        process = mock.MagicMock(facts={"device": "CPU"}, ask=device(task["image_size"] // 16))
        process.__enter__.return_value = process
        return process

    monkeypatch.setattr(paper, "Process", fake)
    file = tmp_path / "figure.png"
    words = ["--models=ViT-B/16,BiT-R50x1", "--image_sizes=32,64", "--max_batch=4"]
    words += ["--precision=bfloat16", f"--output={file}"]
    assert main(["figure_11_throughput", *words]) == 0
    printed = capsys.readouterr().out
    assert "Inference in bfloat16 on CPU, 4 GiB" in printed
    assert cells(printed)[2:] == [
        [model, *row]
        for model in ("ViT-B/16", "BiT-R50x1")
        for row in (["32", "2", "2", "2"], ["64", "4", "4", "≥ 4"])
    ]
    assert file.read_bytes().startswith(b"\x89PNG")


def test_figure_has_a_line_for_each_model():
    measurements = [
        Measurement("ViT-B/16", 224, {8: 50.0, 64: 40.0}, True),
        Measurement("ViT-B/16", 384, {4: 10.0, 16: 9.0}, False),
        Measurement("ViT-H/14", 384, {}, True),
    ]
    rates, batches = paper.draw(measurements, "title").axes
    assert rates.lines[0].get_xydata().tolist() == [[224, 50], [384, 10]]
    assert batches.lines[0].get_xydata().tolist() == [[224, 64], [384, 16]]


def test_every_row_of_table_6_is_printed_with_our_count(cells):
    paper.table_6_exaflops()
    rows = {(row[0], row[1]): row[2:] for row in cells()[2:]}
    assert len(rows) == 18
    assert rows["ViT-B/16", "7"] == ["85.8M", "17.56", "16.35", "223.5", "224", "-0.22%", ""]
    assert "half of the same model's 1668" in rows["R50+ViT-L/16", "7"][-1]
    assert sum(row[-1] != "" for row in rows.values()) == 1
