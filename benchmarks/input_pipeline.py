"""`python -m benchmarks input_pipeline`: what reading, decoding and augmenting images costs.

Our training and evaluation pipelines run beside references on the same JPEGs, in one process
and in turns. The comparison is of CPU time, which a busy machine and its number of cores disturb
least: pipelines like these are bound by decoding, and threads only spread it.
"""

import argparse
import functools
import gc
import pathlib
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness import interleaved, machine, options
from benchmarks.libraries.image_pipelines import (
    FLOOR,
    OURS,
    REDUCED,
    TUTORIAL,
    pipelines,
    prepare,
)
from training.io import atomic
from training.reporting.table import Table

if TYPE_CHECKING:
    import tensorflow as tf

WARM_UP_BATCHES = 3
EXTENSIONS = (".jpg", ".jpeg")


Makers = Mapping[str, Mapping[str, Callable]]


class Turn(NamedTuple):
    """Seconds per image of one turn, of all cores together and on the clock."""

    cpu: float
    wall: float


def main(argv: Sequence[str]) -> int:
    """Prints the table, and writes it where `--output` says; returns the exit code."""
    parser = options.parser("input_pipeline", __doc__, batch_size=50, image_size=224, rounds=15)
    parser.add_argument("--images", required=True, help="folder of JPEGs, sub-folders included")
    parser.add_argument("--batches", type=int, default=10, help="measured in every turn")
    parser.add_argument("--output", help="Markdown file to write the table to")
    chosen = parser.parse_args(argv)
    images = jpegs_below(chosen.images, parser)
    start = machine.describe()
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        prepare(images, folder)
        makers = pipelines(chosen.image_size)
        turns = measure(makers, folder, chosen.batch_size, chosen.batches, chosen.rounds)
        changes = differences(makers, folder, len(images))
    text = (
        f"{report(turns)}\n{changes.markdown()}\n{len(images)} images, batches of "
        f"{chosen.batch_size}, {chosen.image_size} pixels, {chosen.rounds} rounds; medians, "
        f"ratios within a round. {start}"
    )
    print(text)
    if chosen.output:
        atomic.write_text(chosen.output, f"{text}\n")
    return 0


def jpegs_below(folder: str, parser: argparse.ArgumentParser) -> list[pathlib.Path]:
    """Returns the JPEGs in a folder and its sub-folders; without any, ends the command."""
    found = pathlib.Path(folder).rglob("*")
    images = sorted(path for path in found if path.suffix.lower() in EXTENSIONS)
    if not images:
        parser.error(f"expected JPEGs below {folder}, found none")
    return images


def measure(
    pipelines_of: Makers, folder: pathlib.Path, batch_size: int, batches: int, rounds: int
) -> dict[str, list[Turn]]:
    """Returns the turns of every pipeline, by its name."""
    calls = {
        f"{kind}: {name}": functools.partial(turn, make(folder, batch_size), batches, batch_size)
        for kind, makers in pipelines_of.items()
        for name, make in makers.items()
    }
    return interleaved.measure(calls, rounds)


def report(turns: Mapping[str, Sequence[Turn]]) -> str:
    """Returns the Markdown table of what `measure` returned."""

    rows = []
    for kind, makers in pipelines().items():
        cpu, wall = (
            {name: [turn[i] for turn in turns[f"{kind}: {name}"]] for name in makers}
            for i in range(len(Turn._fields))
        )
        for name in makers:
            rates = [f"{1 / statistics.median(seconds[name]):.0f}" for seconds in (cpu, wall)]
            floor, tutorial = (
                interleaved.ratio(cpu[other], cpu[name]) for other in (FLOOR, TUTORIAL)
            )
            ratios = [f"{each.median:.2f}" for each in (floor, tutorial)]
            rows.append([f"{kind}: {name}", *rates, *ratios, tutorial.quartiles()])
    columns = ["pipeline", "images per CPU s", "images per s", "of decoding", "of the tutorial"]
    return Table([*columns, "quartiles"], rows).markdown()


def differences(pipelines_of: Makers, folder: pathlib.Path, images: int) -> Table:
    """Returns how far reduced decoding moves the pixels of so many images of each pipeline."""
    rows = []
    for kind, makers in pipelines_of.items():
        whole, reduced = (next(iter(makers[name](folder, images))) for name in (OURS, REDUCED))
        moved = abs(whole["image"] - reduced["image"]).numpy() * 127.5
        rows.append([kind, f"{moved.mean():.2f}", f"{(moved**2).mean() ** 0.5:.2f}"])
    return Table(["reduced decoding", "mean difference of 255", "root mean square"], rows)


def turn(dataset: "tf.data.Dataset", batches: int, batch_size: int) -> Turn:
    """Returns what so many batches of a pipeline take, after some that are not measured."""
    _wait_until_idle()
    iterator = iter(dataset)
    for _ in range(WARM_UP_BATCHES):
        next(iterator)
    cpu, wall = _cpu_seconds(), time.perf_counter()
    for _ in range(batches):
        next(iterator)
    images = batches * batch_size
    return Turn((_cpu_seconds() - cpu) / images, (time.perf_counter() - wall) / images)


def _wait_until_idle():
    # The previous pipeline may still be filling its buffers.
    gc.collect()
    busy = True
    while busy:
        before = _cpu_seconds()
        time.sleep(0.1)
        busy = _cpu_seconds() - before > 0.01


def _cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
