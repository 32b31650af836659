"""Figure 11 and Table 6: the search for the largest batch, the tables and the figure."""

import csv

import pytest

from benchmarks import paper
from benchmarks.harness.process import ProcessError
from benchmarks.paper import Measurement, search


class Device:
    """Stands for a device whose memory holds `capacity` images."""

    def __init__(self, capacity, rate=lambda batch: batch):
        self.capacity = capacity
        self.of_batch = rate
        self.started = self.tried = 0

    def start(self):
        self.started += 1
        self.dead = False
        return self

    def ask(self, batch_size):
        assert not self.dead, "a process that ran out of memory was asked again"
        self.tried += 1
        self.dead = batch_size > self.capacity
        if self.dead:
            raise ProcessError("killed", out_of_memory=True)
        return {"images_per_second": self.of_batch(batch_size)}

    def close(self):
        pass


def test_largest_batch_is_found_within_an_eighth():
    device = Device(capacity=100)
    rates, limited = search(device.start, 256)
    assert 100 * 7 / 8 <= max(rates) <= 100
    assert limited and device.tried < 13


@pytest.mark.parametrize(
    ("capacity", "best", "largest", "limited"), [(1000, 8, 16, False), (0, 0, 0, True)]
)
def test_best_batch_need_not_be_the_largest(capacity, best, largest, limited):
    device = Device(capacity, rate=lambda batch: -((batch - 8) ** 2) + 100)
    found = Measurement("ViT-B/16", 224, *search(device.start, 16))
    assert (found.best_batch, found.largest_batch, found.limited) == (best, largest, limited)
    assert device.started == 1


def test_a_process_that_fails_otherwise_is_no_limit():
    class Failing(Device):
        def ask(self, batch_size):
            raise ProcessError("no disk", out_of_memory=False)

    with pytest.raises(ProcessError, match="no disk"):
        search(Failing(capacity=1).start, 2)


def test_results_are_printed_written_and_drawn(tmp_path, monkeypatch, capsys, cells):
    class Fake(Device):
        facts = {"device": "CPU"}  # noqa: RUF012

        def __init__(self, function, task, *, memory):
            super().__init__(capacity=task["image_size"] // 16)
            self.start()

    monkeypatch.setattr(paper, "Process", Fake)
    paper.figure_11_throughput(
        str(tmp_path),
        models=["ViT-B/16", "BiT-R50x1"],
        image_sizes=[32, 64],
        max_batch=4,
        precision="bfloat16",
    )
    with (tmp_path / "throughput.csv").open() as file:
        _, *rows = csv.reader(file)
    assert rows[:5] == [
        ["ViT-B/16", "32", "1", "1", "False"],
        ["ViT-B/16", "32", "2", "2", "True"],
        ["ViT-B/16", "64", "1", "1", "False"],
        ["ViT-B/16", "64", "2", "2", "False"],
        ["ViT-B/16", "64", "4", "4", "False"],
    ]
    printed = capsys.readouterr().out
    assert [[row[0], row[1], row[4]] for row in cells(printed)[2:]] == [
        ["ViT-B/16", "32", "2"],
        ["ViT-B/16", "64", "≥ 4"],
        ["BiT-R50x1", "32", "2"],
        ["BiT-R50x1", "64", "≥ 4"],
    ]
    assert "Inference in bfloat16 on CPU, 4 GiB" in printed
    assert printed == (tmp_path / "throughput.md").read_text()
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")


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


def test_one_model_by_layer_type(capsys):
    paper.table_6_exaflops("ViT-B/16", image_size=384)
    assert "55,484,350,464" in capsys.readouterr().out
