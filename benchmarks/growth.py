"""`python -m benchmarks growth`: time and memory against image size, depth and processes."""

import argparse
import csv
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

from benchmarks.harness import interleaved, machine
from benchmarks.harness.case import MODES, PRECISIONS, Case
from benchmarks.harness.progress import Bar
from benchmarks.harness.table import markdown

ROOT = pathlib.Path(__file__).parents[1]
OURS = "keras_vit"
REPLICA_CONFIG = "training/configs/quickstart.py"
REPLICA_STEPS, REPLICA_BATCH = 200, 128


def parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth",
        description="Measures how a step grows with the image size and the depth, each in a "
        "process of its own and in interleaved rounds, and how the trainer's rate grows with the "
        "number of processes. Prints Markdown.",
    )
    parser.add_argument("--model", default="ViT-Ti/16")
    parser.add_argument("--image-sizes", default="64,128,224,320,384,512", help="comma-separated")
    parser.add_argument("--depths", default="3,6,12,24", help="comma-separated")
    parser.add_argument("--processes", default="1,2", help="of one core each; 0: none")
    parser.add_argument("--mode", default="infer", choices=MODES)
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="per case and round")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def attention_share(arguments):
    """Returns the part of the encoder's multiplications whose number is quadratic in the tokens."""
    tokens = (arguments["image_size"] // arguments["patch_size"]) ** 2 + 1
    width, hidden = arguments["hidden_size"], arguments["mlp_dim"]
    quadratic = 2 * tokens**2 * width
    return quadratic / (quadratic + tokens * (4 * width**2 + 2 * width * hidden))


def _table(column, values, results):
    rows = []
    for value, result in zip(values, results, strict=True):
        arguments, batch = result.case.arguments, result.case.batch
        rate = statistics.median(
            2 * result.facts["executed_macs"] * batch / seconds for seconds in result.rounds
        )
        rows.append(
            [
                str(value),
                str((arguments["image_size"] // arguments["patch_size"]) ** 2 + 1),
                f"{1000 * result.seconds / batch:.2f}",
                f"{rate / 1e9:.0f}",
                f"{100 * attention_share(arguments):.0f} %",
                f"{result.memory / 2**20:.0f}",
            ]
        )
    header = [column, "tokens", "ms per image", "forward GFLOP/s", "quadratic part", "peak MiB"]
    return markdown(header, rows)


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def replica_rate(processes):
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
                    preexec_fn=lambda core=index: _pin(core),
                )
            )
        for worker in workers:
            _, errors = worker.communicate()
            if worker.returncode:
                raise RuntimeError(f"A process of the trainer failed: {errors[-2000:].decode()}")
        with open(pathlib.Path(directory) / "metrics.csv", encoding="utf-8") as file:
            rates = [float(row["images_per_second"] or 0) for row in csv.DictReader(file)]
    return max(rates)


def _pin(core):
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


def main(argv):
    """Runs the benchmark; returns the exit code."""
    from keras_vit.variants import arguments_of

    options = parser().parse_args(argv)
    _, arguments = arguments_of(options.model)
    arguments = {**arguments, "image_size": 224, "num_classes": 1000}
    sizes, depths, processes = (
        [int(value) for value in text.split(",") if int(value)]
        for text in (options.image_sizes, options.depths, options.processes)
    )

    def case(**changes):
        return Case(
            OURS,
            {**arguments, **changes},
            options.mode,
            options.batch,
            options.precision,
            threads=options.threads,
        )

    cases = [case(image_size=size) for size in sizes] + [case(num_layers=n) for n in depths]
    print(
        f"{options.model}, {options.mode}, batch {options.batch}, {options.precision}; medians of "
        f"{options.rounds} interleaved rounds.\n{machine.describe(options.threads)}\n",
        flush=True,
    )
    with Bar(len(cases) * (1 + options.rounds) + len(processes)) as bar:
        results = interleaved.run(cases, options.rounds, options.seconds, bar)
        print(_table("image size", sizes, results[: len(sizes)]), flush=True)
        print()
        print(_table("layers", depths, results[len(sizes) :]), flush=True)
        rates = []
        for count in processes:
            bar.note(f"trainer on {count} processes")
            rates.append(replica_rate(count))
            bar.advance()
    if rates:
        rows = [
            [str(count), f"{rate:.0f}", f"{rate / rates[0]:.2f}"]
            for count, rate in zip(processes, rates, strict=True)
        ]
        print(f"\nThe trainer on the quickstart's model, {REPLICA_BATCH} images per process:\n")
        print(markdown(["processes of one core", "images per second", "× the first"], rows))
    return 0
