"""`python -m benchmarks input_cores`: images a second of a host against its cores.

Our training pipeline runs in processes that may use 1, 2, … cores of this machine, in turns. For
hosts of more cores than it has, a model:

    images a second = cores x images a CPU-second, at most batches at once x images a thread copies

The first is linear, with the CPU time of the most cores that were measured. The second is what
threads put into batches, measured with images that cost nothing. The model knows nothing of what
cores share: the bandwidth of memory, caches, two hyperthreads on a core.
"""

import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.harness import interleaved, machine, options
from benchmarks.harness.process import Process
from benchmarks.input_pipeline import Turn, jpegs_below, turn
from benchmarks.libraries import image_pipelines
from training.reporting.table import Table

# Cores of hosts of TPU slices.
HOSTS = (112, 224)
PIXELS = {"float32": image_pipelines.OURS, "uint8": image_pipelines.BYTES}
_COPY = 0


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit code."""
    parser = options.parser("input_cores", __doc__, batch_size=50, rounds=7)
    parser.add_argument("--images", required=True, help="folder of JPEGs, sub-folders included")
    parser.add_argument("--batches", type=int, default=10, help="measured in every turn")
    parser.add_argument("--hosts", default=HOSTS, type=int, nargs="+", help="cores (112 224)")
    chosen = parser.parse_args(argv)
    images = jpegs_below(chosen.images, parser)
    start = machine.describe()
    with tempfile.TemporaryDirectory() as directory:
        image_pipelines.prepare(images, pathlib.Path(directory))
        task = {"folder": directory, "batch_size": chosen.batch_size, "batches": chosen.batches}
        turns = measure(task, chosen.rounds)
    print(report(turns, chosen.hosts).markdown())
    print(f"{len(images)} images, batches of {chosen.batch_size}, {chosen.rounds} rounds. {start}")
    return 0


def measure(task: Mapping[str, Any], rounds: int) -> dict[tuple[int, str], list[Turn]]:
    """Returns the turns of every number of cores, `_COPY` for batches alone, and kind of pixels."""
    counts = range(1, len(os.sched_getaffinity(0)) + 1)
    processes = {
        cores: Process("benchmarks.input_cores:feed", {**task, "cores": cores}) for cores in counts
    }

    def ask(cores: int, pixels: str) -> Callable[[], Turn]:
        def call() -> Turn:
            process = processes[max(counts) if cores == _COPY else cores]
            answer = process.ask(pixels=pixels, copy_only=cores == _COPY)
            return Turn(answer["cpu"], answer["wall"])

        return call

    try:
        return interleaved.measure(
            {
                (cores, pixels): ask(cores, pixels)
                for cores in (_COPY, *counts)
                for pixels in PIXELS
            },
            rounds,
        )
    finally:
        for process in processes.values():
            process.close()


def feed(
    folder: str, batch_size: int, batches: int, cores: int
) -> tuple[dict[str, Any], Callable[..., dict[str, float]]]:
    """Returns what a measured process answers with, see `benchmarks.harness.process`."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import tensorflow as tf

    datasets = {}
    for pixels, name in PIXELS.items():
        ours = image_pipelines.pipelines()["training"][name](pathlib.Path(folder), batch_size)
        spec = ours.element_spec["image"]
        blank = tf.data.Dataset.from_tensors(tf.zeros(spec.shape[1:], spec.dtype)).repeat()
        datasets[pixels, False] = ours
        datasets[pixels, True] = blank.batch(batch_size, drop_remainder=True)

    def answer(pixels: str, copy_only: bool) -> dict[str, float]:
        return turn(datasets[pixels, copy_only], batches, batch_size)._asdict()

    return {}, answer


def report(turns: Mapping[tuple[int, str], Sequence[Turn]], hosts: Sequence[int]) -> Table:
    """Returns images a second of the cores that were measured, and of `hosts` by the model."""
    from training.data.pipeline import batches_at_once

    most = max(cores for cores, _ in turns)
    rows: list[list[object]] = []
    for cores in range(1, most + 1):
        rates = [_rate(turns[cores, pixels], "wall") for pixels in PIXELS]
        rows.append(
            [cores, "measured", *(text for rate in rates for text in (f"{rate:,.0f}", "–"))]
        )
    for cores in hosts:
        cells = []
        for pixels in PIXELS:
            decoded = cores * _rate(turns[most, pixels], "cpu")
            copied = batches_at_once(cores) * _rate(turns[_COPY, pixels], "wall")
            cells += [f"{min(decoded, copied):,.0f}", "cores" if decoded < copied else "copies"]
        rows.append([cores, "model", *cells])
    columns = ["cores", "by"]
    for pixels in PIXELS:
        columns += [f"{pixels}, images/s", "bound by"]
    return Table(columns, rows)


def _rate(turns, seconds):
    return 1 / statistics.median(getattr(one, seconds) for one in turns)
