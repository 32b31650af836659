"""`python -m benchmarks memory`: what a training step holds, with and without remat."""

import argparse
import itertools
from collections.abc import Sequence

from benchmarks.harness import library_steps, machine, options
from benchmarks.harness.case import Case
from benchmarks.harness.progress import track
from training.command_options import list_of
from training.reporting.table import Table


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    parser = options.parser(
        "memory",
        "Measures the peak memory of a process that trains, for each batch size, with and\n"
        "without recomputing the blocks (`remat=True`). Prints Markdown.",
        model="ViT-B/16",
        image_size=224,
        precision="float32",
        threads=2,
    )
    parser.add_argument(
        "--batches",
        type=list_of(int),
        default="1,4,8,16,32",
        help="images per step, separated by commas",
    )
    return parser


def peak(case: Case, threads: int) -> int:
    """Returns the most memory that a process of the case held, in bytes."""
    with library_steps.start(case, threads) as process:
        return process.ask(seconds=0)["memory"]


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    from keras_vit.variants import arguments_of

    chosen = parser().parse_args(argv)
    arguments = arguments_of(chosen.model)[1]
    arguments |= {"image_size": chosen.image_size, "num_classes": 1000}
    print(f"{chosen.model}, {chosen.image_size} px, {chosen.precision}, training step.")
    print(machine.describe(chosen.threads), "\n", flush=True)
    memory = {}
    runs = list(itertools.product(chosen.batches, (False, True)))
    for batch, remat in track(runs, lambda run: f"batch {run[0]}{', remat' if run[1] else ''}"):
        case = Case("keras_vit", {**arguments, "remat": remat}, "train", batch, chosen.precision)
        memory[batch, remat] = peak(case, chosen.threads) / 2**20
    rows = [
        [batch, f"{memory[batch, False]:.0f}", f"{memory[batch, True]:.0f}",
         f"{memory[batch, True] / memory[batch, False]:.2f}"]
        for batch in chosen.batches
    ]  # fmt: skip
    print(Table(["batch", "peak MiB", "with remat", "ratio"], rows).markdown())
    return 0
