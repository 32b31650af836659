"""`python -m benchmarks figure_11_throughput`: Figure 11, speed and memory against the image size.

For every model and image size: the images per second at the best batch size, and the largest
batch that fits. Each is measured in a process of its own; on a CPU a batch "fits" if that process
stays below --memory.
"""

import argparse
import functools
import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from benchmarks.harness import options
from benchmarks.harness.process import Process, ProcessError
from benchmarks.harness.progress import track
from training.command_options import list_of
from training.io import atomic
from training.reporting.table import Table

# The models and sizes of the paper's figure.
FIGURE_MODELS = "BiT-R50x1,BiT-R50x2,ViT-B/32,ViT-L/32,ViT-B/16,ViT-L/16,ViT-H/14,BiT-R152x4"
FIGURE_SIZES = "64,128,224,384,512"
GIB = 2**30
BATCH_RATE = "benchmarks.harness.batch_rate:prepare"


class Measurement(NamedTuple):
    """One model at one image size.

    Attributes:
        model, image_size: what was measured.
        best_batch: the batch size of the highest rate, 0 if not even one image fits.
        images_per_second: the rate at that batch size.
        largest_batch: the largest batch size that was found to fit.
        limited: whether a larger one was found not to fit, rather than not tried.
    """

    model: str
    image_size: int
    best_batch: int
    images_per_second: float
    largest_batch: int
    limited: bool


def measure(
    start: Callable[[], Process], model: str, image_size: int, batches: Sequence[int]
) -> Measurement:
    """Measures one model at one image size.

    Args:
        start: returns a new process of `benchmarks.harness.batch_rate`; a batch that does not fit
            ends it.
        model, image_size: for the result.
        batches: increasing batch sizes to try. After the first that does not fit, the gap to
            the one before is halved until it is an eighth.
    """
    rates: dict[int, float] = {}
    limit, process = None, start()
    try:
        while batch := _next_batch(batches, max(rates, default=0), limit):
            if limit is not None:
                # The limit ended the last one, and a new one has no memory in pieces.
                process.close()
                process = start()
            try:
                rates[batch] = process.ask(batch_size=batch)["images_per_second"]
            except ProcessError as error:
                if not error.out_of_memory:
                    raise
                limit = batch
    finally:
        process.close()
    best = max(rates, key=rates.__getitem__, default=0)
    largest = max(rates, default=0)
    return Measurement(model, image_size, best, rates.get(best, 0.0), largest, limit is not None)


def _next_batch(batches, largest, limit):
    if limit is None:
        return next((batch for batch in batches if batch > largest), None)
    return (largest + limit) // 2 if limit - largest > max(largest // 8, 1) else None


def draw(measurements: Sequence[Measurement], title: str) -> Figure:
    """Returns the figure: rate and largest batch against the image size, a line for each model."""
    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    for model in dict.fromkeys(each.model for each in measurements):
        points = [each for each in measurements if each.model == model and each.best_batch]
        sizes = [each.image_size for each in points]
        (line,) = left.plot(sizes, [each.images_per_second for each in points], "o-", label=model)
        right.plot(sizes, [each.largest_batch for each in points], "-", color=line.get_color())
        for limited, marker in ((True, "o"), (False, "^")):
            batches = {p.image_size: p.largest_batch for p in points if p.limited == limited}
            right.plot([*batches], [*batches.values()], marker, color=line.get_color())
    for axis, label in ((left, "images per second"), (right, "largest batch (▲ at least)")):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        ticks = sorted({each.image_size for each in measurements})
        axis.set_xticks(ticks, ticks)
        axis.minorticks_off()
        axis.set_xlabel("image size (pixels)")
        axis.set_ylabel(label)
    left.legend(fontsize=7)
    figure.suptitle(title, fontsize=9)
    return figure


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    parser = options.parser("figure_11_throughput", __doc__, mode="infer", threads=0)
    names, sizes = list_of(str), list_of(int)
    parser.add_argument(
        "--output", default="throughput", help="folder for throughput.csv, .md and .png"
    )
    parser.add_argument("--models", type=names, default=FIGURE_MODELS, help="names, by commas")
    parser.add_argument("--image_sizes", type=sizes, default=FIGURE_SIZES)
    parser.add_argument(
        "--max_batch", type=int, default=1024, help="powers of 2 up to here are tried"
    )
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--jit_compile", action="store_true", help="compile with XLA")
    parser.add_argument("--repeats", type=int, default=3, help="timed batches; the median counts")
    parser.add_argument(
        "--memory",
        type=float,
        default=4.0,
        help="GiB of main memory that a measurement may take; 0 is no limit. On a GPU its own "
        "memory is the limit",
    )
    return parser


def _write(measurements, output, title):
    """Writes the results as CSV, Markdown and a figure; returns the Markdown."""
    columns = ["model", "image size", "images/s", "at batch", "largest batch"]
    rows = [
        [
            each.model,
            each.image_size,
            f"{each.images_per_second:.4g}",
            each.best_batch,
            each.largest_batch if each.limited else f"≥ {each.largest_batch}",
        ]
        for each in measurements
    ]
    text = f"{title}\n\n{Table(columns, rows).markdown()}"
    atomic.write_text(output / "throughput.md", text)
    atomic.write_text(output / "throughput.csv", Table(Measurement._fields, measurements).csv())
    with atomic.atomic_file(output / "throughput.png") as temporary:
        draw(measurements, title).savefig(temporary, format="png")
    return text


def main(argv: Sequence[str]) -> int:
    """Measures, prints the table and writes it with its figure; returns the exit code."""
    from keras_vit import variants

    command = parser()
    chosen = command.parse_args(argv)
    if chosen.max_batch < 1 or chosen.repeats < 1 or min(chosen.image_sizes) < 1:
        command.error("expected --max_batch, --repeats and --image_sizes to be at least 1")
    try:
        for model in chosen.models:
            variants.arguments_of(model)
    except ValueError as error:
        command.error(str(error))
    batches = [2**power for power in range(chosen.max_batch.bit_length())]
    devices = set()

    def start(model, image_size):
        task = {
            "model": model,
            "image_size": image_size,
            "train": chosen.mode == "train",
            "precision": chosen.precision,
            "jit_compile": chosen.jit_compile,
            "repeats": chosen.repeats,
        }
        memory = int(chosen.memory * GIB)
        process = Process(BATCH_RATE, task, threads=chosen.threads, memory=memory)
        devices.add(process.facts["device"])
        return process

    cells = list(itertools.product(chosen.models, chosen.image_sizes))
    measurements = [
        measure(functools.partial(start, *cell), *cell, batches)
        for cell in track(cells, lambda cell: f"{cell[0]}, {cell[1]} px")
    ]
    kind = "Training step" if chosen.mode == "train" else "Inference"
    device = ", ".join(sorted(devices)) or "no device"
    limit = f", {chosen.memory:g} GiB" if chosen.memory and "CPU" in devices else ""
    xla = ", XLA" if chosen.jit_compile else ""
    title = f"{kind} on {device}{limit}, {chosen.precision}{xla}"
    print(_write(measurements, pathlib.Path(chosen.output), title), end="")
    return 0
