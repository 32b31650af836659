"""`python -m benchmarks growth`: time and memory against image size, depth and processes."""

import argparse
import contextlib
import csv
import functools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import library_steps, machine, options
from benchmarks.harness.case import Case
from benchmarks.harness.library_steps import Result
from benchmarks.harness.progress import track
from training.command_options import list_of
from training.reporting.table import Table

ROOT = pathlib.Path(__file__).parents[1]
REPLICA_CONFIG = "training/configs/quickstart.py"
REPLICA_STEPS, REPLICA_BATCH = 200, 128


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    parser = options.parser(
        "growth",
        "Measures how a step grows with the image size and the depth, each in a process of its\n"
        "own and in interleaved rounds, and how the trainer's rate grows with the number of\n"
        "processes. Prints Markdown.",
        model="ViT-Ti/16",
        mode="infer",
        precision="float32",
        batch_size=8,
        rounds=7,
        seconds=0.5,
        threads=2,
    )
    for name, default, text in (
        ("image_sizes", "64,128,224,320,384,512", "in pixels"),
        ("depths", "3,6,12,24", "numbers of layers"),
        ("processes", "1,2", "numbers of processes of one core each; 0: none"),
    ):
        convert = list_of(int)
        parser.add_argument(f"--{name}", type=convert, default=default, help=f"{text}, by commas")
    return parser


def tokens(arguments: dict[str, Any]) -> int:
    """Returns the length of the sequence, class token included."""
    return (arguments["image_size"] // arguments["patch_size"]) ** 2 + 1


def attention_share(arguments: dict[str, Any]) -> float:
    """Returns the part of the encoder's multiplications whose number is quadratic in the tokens."""
    width, hidden = arguments["hidden_size"], arguments["mlp_dim"]
    quadratic = 2 * tokens(arguments) ** 2 * width
    return quadratic / (quadratic + tokens(arguments) * (4 * width**2 + 2 * width * hidden))


def _table(column: str, values: Sequence[int], results: Sequence[Result]) -> str:
    rows = []
    for value, result in zip(values, results, strict=True):
        arguments, batch_size = result.case.arguments, result.case.batch_size
        flops = 2 * result.facts["executed_macs"] * batch_size
        rate = statistics.median(flops / seconds for seconds in result.rounds)
        rows.append(
            [
                value,
                tokens(arguments),
                f"{1000 * statistics.median(result.per_image):.2f}",
                f"{rate / 1e9:.0f}",
                f"{100 * attention_share(arguments):.0f} %",
                f"{result.memory / 2**20:.0f}",
            ]
        )
    columns = [column, "tokens", "ms per image", "forward GFLOP/s", "quadratic part", "peak MiB"]
    return Table(columns, rows).markdown()


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def replica_rate(processes: int) -> float:
    """Returns the images per second of the trainer on `processes` processes of one core each.

    Each process adds a batch of its own: twice the processes, twice the images per update.
    """
    cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(processes)]}
    with tempfile.TemporaryDirectory() as directory:
        workers = []
        for index in range(processes):
            command = [
                sys.executable, "-m", "training", f"--config={REPLICA_CONFIG}",
                f"--workdir={directory}", f"--config.total_steps={REPLICA_STEPS}",
                f"--config.batch_size={REPLICA_BATCH * processes}",
                "--config.eval_batch_size=120", "--config.optimizer.warmup_steps=10",
                f"--config.strategy={'multiworker' if processes > 1 else 'one'}",
            ]  # fmt: skip
            environment = dict(os.environ, TF_NUM_INTRAOP_THREADS="1", OMP_NUM_THREADS="1")
            if processes > 1:
                task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
                environment["TF_CONFIG"] = json.dumps(task)
            workers.append(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    preexec_fn=functools.partial(_pin, index),
                )
            )
        for worker in workers:
            _, errors = worker.communicate()
            if worker.returncode:
                raise RuntimeError(f"A process of the trainer failed: {errors[-2000:].decode()}")
        with open(pathlib.Path(directory) / "metrics.csv", encoding="utf-8") as file:
            return max(float(row["images_per_second"] or 0) for row in csv.DictReader(file))


def _pin(core):
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    from keras_vit.variants import arguments_of

    chosen = parser().parse_args(argv)
    arguments = {**arguments_of(chosen.model)[1], "image_size": 224, "num_classes": 1000}
    changes = [{"image_size": size} for size in chosen.image_sizes]
    changes += [{"num_layers": depth} for depth in chosen.depths]
    settings = chosen.mode, chosen.batch_size, chosen.precision
    cases = [Case("keras_vit", {**arguments, **change}, *settings) for change in changes]
    print(
        f"{chosen.model}, {chosen.mode}, batch {chosen.batch_size}, {chosen.precision}; medians of "
        f"{chosen.rounds} interleaved rounds.\n{machine.describe(chosen.threads)}\n",
        flush=True,
    )
    results = library_steps.measure(cases, chosen.rounds, chosen.seconds, chosen.threads)
    sizes = len(chosen.image_sizes)
    print(_table("image size", chosen.image_sizes, results[:sizes]))
    print(_table("layers", chosen.depths, results[sizes:]), flush=True)
    processes = [count for count in chosen.processes if count]
    rates = [replica_rate(count) for count in track(processes, lambda n: f"{n} processes")]
    if rates:
        rows = [
            [count, f"{rate:.0f}", f"{rate / rates[0]:.2f}"]
            for count, rate in zip(processes, rates, strict=True)
        ]
        print(f"The trainer on the quickstart's model, {REPLICA_BATCH} images per process:\n")
        columns = ["processes of one core", "images per second", "× the first"]
        print(Table(columns, rows).markdown())
    return 0
