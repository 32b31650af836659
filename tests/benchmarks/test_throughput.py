"""The search for the best and the largest batch, and the process that may run out of memory."""

import csv

import pytest

from benchmarks import throughput
from benchmarks.throughput import Measurement, Process, measure


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

    def rate(self, batch):
        assert not self.dead, "a process that ran out of memory was asked again"
        self.tried += 1
        self.dead = batch > self.capacity
        return None if self.dead else self.of_batch(batch)

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


def test_nothing_fits():
    found = measure(Device(capacity=0).start, "ViT-H/14", 512, [1, 2])
    assert found == Measurement("ViT-H/14", 512, 0, 0.0, 0, True)


@pytest.fixture
def task():
    return {
        "model": "ViT-Ti/16",
        "image_size": 32,
        "train": False,
        "precision": "float32",
        "jit_compile": False,
        "repeats": 1,
        "threads": 1,
    }


def test_a_process_measures_until_it_takes_too_much(task):
    # 2^17 images of 32 pixels are 1.5 GiB before any of them is looked at.
    process = Process({**task, "train": True}, 3 * throughput.GIB // 2)
    try:
        assert process.device in ("CPU", "GPU")
        assert process.rate(2) > 0
        assert process.rate(2**17) is None
    finally:
        process.close()


def test_a_process_that_fails_otherwise_says_why(task):
    with pytest.raises(RuntimeError, match="ViT-Z/16"):
        Process({**task, "model": "ViT-Z/16"}, 0)


def test_results_are_printed_written_and_drawn(tmp_path, monkeypatch, capsys):
    class Fake(Device):
        device = "CPU"

        def __init__(self, task, memory):
            super().__init__(capacity=task["image_size"] // 16)
            self.start()

    monkeypatch.setattr(throughput, "Process", Fake)
    arguments = ["--models=ViT-B/16,BiT-R50x1", "--image_sizes=32,64", "--max_batch=4"]
    assert throughput.main([*arguments, f"--output={tmp_path / 'speed'}"]) == 0
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
    rates, batches = throughput.draw(measurements, "title").axes
    assert rates.lines[0].get_xydata().tolist() == [[224, 50], [384, 10]]
    assert batches.lines[0].get_xydata().tolist() == [[224, 64], [384, 16]]


@pytest.mark.parametrize("argument", ["--models=ViT-Z/16", "--max_batch=0"])
def test_mistakes_end_with_a_message(tmp_path, argument, capsys):
    with pytest.raises(SystemExit) as exit_status:
        throughput.main([argument, f"--output={tmp_path / 'speed'}"])
    assert exit_status.value.code == 2
    assert not (tmp_path / "speed").exists()
