"""`python -m benchmarks memory`: what a training step holds, with and without remat."""

import argparse

from benchmarks.harness import machine
from benchmarks.harness.case import PRECISIONS, Case
from benchmarks.harness.library_process import Contestant
from benchmarks.harness.progress import Bar
from benchmarks.harness.table import markdown

OURS = "keras_vit"


def parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks memory",
        description="Measures the peak memory of a process that trains, for each batch size, with "
        "and without recomputing the blocks (`remat=True`). Prints Markdown.",
    )
    parser.add_argument("--model", default="ViT-B/16")
    parser.add_argument("--batches", default="1,4,8,16,32", help="comma-separated")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--threads", type=int, default=2)
    return parser


def peak(case):
    """Returns the most memory that a process of the case held, in bytes."""
    with Contestant(case) as contestant:
        return contestant.measure(0)["memory"]


def main(argv):
    """Runs the benchmark; returns the exit code."""
    from keras_vit.variants import arguments_of

    options = parser().parse_args(argv)
    _, arguments = arguments_of(options.model)
    arguments = {**arguments, "image_size": options.image_size, "num_classes": 1000}
    batches = [int(batch) for batch in options.batches.split(",")]
    print(f"{options.model}, {options.image_size} px, {options.precision}, training step.")
    print(machine.describe(options.threads), "\n", flush=True)
    rows = []
    with Bar(2 * len(batches)) as bar:
        for batch in batches:
            memory = {}
            for remat in (False, True):
                bar.note(f"batch {batch}{', remat' if remat else ''}")
                case = Case(
                    OURS,
                    {**arguments, "remat": remat},
                    mode="train",
                    batch=batch,
                    precision=options.precision,
                    threads=options.threads,
                )
                memory[remat] = peak(case)
                bar.advance()
            rows.append(
                [
                    str(batch),
                    f"{memory[False] / 2**20:.0f}",
                    f"{memory[True] / 2**20:.0f}",
                    f"{memory[True] / memory[False]:.2f}",
                ]
            )
    print(markdown(["batch", "peak MiB", "with remat", "ratio"], rows))
    return 0
