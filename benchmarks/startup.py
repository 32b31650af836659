"""`python -m benchmarks startup`: import, build a model, load a checkpoint, begin a run."""

import argparse
import pathlib
import statistics
import tempfile
from collections.abc import Sequence

from benchmarks.harness import machine, options
from benchmarks.harness.process import Process
from benchmarks.harness.progress import track
from training.reporting.table import Table

LABELS = {
    "keras": "`import keras`",
    "keras_vit": "`import keras_vit` after it",
    "build": "build the model",
    "load": "load an official checkpoint",
    "imported": "`python -m training`: imports",
    "tracing": "`python -m training`: until the trace of the first step begins",
}


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    return options.parser(
        "startup",
        "Times what comes before the first step, in new processes, and the memory that loading an\n"
        "official checkpoint takes beside its size. Prints Markdown.",
        model="ViT-B/16",
        rounds=7,
    )


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    chosen = parser().parse_args(argv)
    print(f"{chosen.model}; medians of {chosen.rounds} new processes.")
    print(machine.describe(), "\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "checkpoint.npz"
        task, turns = {"model": chosen.model, "file": str(file)}, []
        for turn in track(range(chosen.rounds + 1), lambda number: f"process {number}"):
            with Process("benchmarks.harness.cold_start:load", task) as process:
                facts = process.facts
            run = {"workdir": f"{directory}/run_{turn}"}
            with Process("benchmarks.harness.cold_start:train", run) as process:
                turns.append(facts | process.facts)
        size = file.stat().st_size
    # The first process has written the checkpoint.
    median = {key: statistics.median(turn[key] for turn in turns[1:]) for key in turns[1]}
    rows = [[label, f"{median[key]:.2f}"] for key, label in LABELS.items()]
    print(Table(["", "seconds"], rows).markdown())
    print(
        f"The checkpoint has {size / 2**20:.0f} MiB; the loaded model and what loading held "
        f"beside it, {median['held'] / 2**20:.0f} MiB: {median['held'] / size:.2f} times as much."
    )
    return 0
