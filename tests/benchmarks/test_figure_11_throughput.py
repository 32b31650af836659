"""The search for the best and the largest batch, its table and its figure."""

import csv

import pytest

from benchmarks import figure_11_throughput
from benchmarks.figure_11_throughput import Measurement, measure
from benchmarks.harness.process import ProcessError


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
    found = measure(device.start, "ViT-B/16", 224, [1, 2, 4, 8, 16, 32, 64, 128, 256])
    assert 100 * 7 / 8 <= found.largest_batch <= 100
    assert found.limited
    assert (found.best_batch, found.images_per_second) == (found.largest_batch, found.largest_batch)
    assert device.tried < 13


def test_best_batch_need_not_be_the_largest():
    device = Device(capacity=1000, rate=lambda batch: -((batch - 8) ** 2) + 100)
    found = measure(device.start, "ViT-B/16", 224, [1, 2, 4, 8, 16])
    assert found == Measurement("ViT-B/16", 224, 8, 100, 16, False)
    assert device.started == 1


def test_a_process_that_fails_otherwise_is_no_limit():
    class Failing(Device):
        def ask(self, batch_size):
            raise ProcessError("no disk", out_of_memory=False)

    with pytest.raises(ProcessError, match="no disk"):
        measure(Failing(capacity=1).start, "ViT-B/16", 224, [1, 2])


def test_nothing_fits():
    found = measure(Device(capacity=0).start, "ViT-H/14", 512, [1, 2])
    assert found == Measurement("ViT-H/14", 512, 0, 0.0, 0, True)


def test_results_are_printed_written_and_drawn(tmp_path, monkeypatch, capsys):
    class Fake(Device):
        facts = {"device": "CPU"}  # noqa: RUF012

        def __init__(self, function, task, *, threads, memory):
            super().__init__(capacity=task["image_size"] // 16)
            self.start()

    monkeypatch.setattr(figure_11_throughput, "Process", Fake)
    arguments = ["--models=ViT-B/16,BiT-R50x1", "--image_sizes=32,64", "--max_batch=4"]
    assert figure_11_throughput.main([*arguments, f"--output={tmp_path / 'speed'}"]) == 0
    with (tmp_path / "speed" / "throughput.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["image_size"], row["largest_batch"]) for row in rows] == [
        ("ViT-B/16", "32", "2"),
        ("ViT-B/16", "64", "4"),
        ("BiT-R50x1", "32", "2"),
        ("BiT-R50x1", "64", "4"),
    ]
    printed = capsys.readouterr().out
    assert "Inference on CPU, 4 GiB, float32" in printed
    assert printed == (tmp_path / "speed" / "throughput.md").read_text()
    assert (tmp_path / "speed" / "throughput.png").read_bytes().startswith(b"\x89PNG")


def test_figure_has_a_line_for_each_model():
    measurements = [
        Measurement("ViT-B/16", 224, 8, 50.0, 64, True),
        Measurement("ViT-B/16", 384, 4, 10.0, 16, False),
        Measurement("ViT-H/14", 384, 0, 0.0, 0, True),
    ]
    rates, batches = figure_11_throughput.draw(measurements, "title").axes
    assert rates.lines[0].get_xydata().tolist() == [[224, 50], [384, 10]]
    assert batches.lines[0].get_xydata().tolist() == [[224, 64], [384, 16]]


@pytest.mark.parametrize("argument", ["--models=ViT-Z/16", "--max_batch=0"])
def test_mistakes_end_with_a_message(tmp_path, argument, capsys):
    with pytest.raises(SystemExit) as exit_status:
        figure_11_throughput.main([argument, f"--output={tmp_path / 'speed'}"])
    assert exit_status.value.code == 2
    assert not (tmp_path / "speed").exists()
