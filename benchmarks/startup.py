"""`python -m benchmarks startup`: import, build a model, load a checkpoint."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from benchmarks.harness import machine
from benchmarks.harness.progress import Bar
from benchmarks.harness.table import markdown

PROGRAM = """
import json, os, resource, sys, time
task, model, file = sys.argv[1:]
before = time.perf_counter()
import keras
keras_only = time.perf_counter() - before
import keras_vit
both = time.perf_counter() - before
seconds = {"import keras": keras_only, "import keras_vit": both - keras_only}
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
memory = 0
if task != "import":
    create = lambda: keras_vit.create_model(model, num_classes=1000)
    keras.ops.convert_to_numpy(keras.ops.matmul(keras.ops.ones((64, 64)), keras.ops.ones((64, 64))))
    before = time.perf_counter()
    built = create()
    seconds["build"] = time.perf_counter() - before
if task == "save":
    keras_vit.save_checkpoint(built, file)
if task == "load":
    held, before = resident(), time.perf_counter()
    keras_vit.load_checkpoint(built, file)
    seconds["load"] = time.perf_counter() - before
    weights = sum(int(keras.ops.size(w)) * 4 for w in built.weights)
    # The model was built before: its variables count as memory of the loaded model.
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - held + weights
print(json.dumps({"seconds": seconds, "memory": memory}))
"""
LABELS = {
    "import keras": "`import keras`",
    "import keras_vit": "`import keras_vit` after it",
    "build": "build the model",
    "load": "load an official checkpoint",
}


def parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks startup",
        description="Times what comes before the first step, in new processes, and the memory that "
        "loading an official checkpoint takes beside its size. Prints Markdown.",
    )
    parser.add_argument("--model", default="ViT-B/16")
    parser.add_argument("--rounds", type=int, default=7)
    return parser


def _run(task, model, file):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, task, model, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if result.returncode:
        raise RuntimeError(f"The measured process failed: {result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def main(argv):
    """Runs the benchmark; returns the exit code."""
    options = parser().parse_args(argv)
    print(f"{options.model}; medians of {options.rounds} new processes.")
    print(machine.describe(os.cpu_count()), "\n", flush=True)
    with tempfile.TemporaryDirectory() as directory, Bar(options.rounds + 1) as bar:
        file = pathlib.Path(directory) / "checkpoint.npz"
        bar.note("writing a checkpoint")
        _run("save", options.model, file)
        bar.advance()
        answers = []
        for number in range(options.rounds):
            bar.note(f"round {number + 1}")
            answers.append(_run("load", options.model, file))
            bar.advance()
        size = file.stat().st_size
    rows = [
        [label, f"{statistics.median(each['seconds'][key] for each in answers):.2f}"]
        for key, label in LABELS.items()
    ]
    print(markdown(["", "seconds"], rows))
    peak = statistics.median(each["memory"] for each in answers)
    print(
        f"\nThe checkpoint has {size / 2**20:.0f} MiB; the loaded model and what loading held "
        f"beside it, {peak / 2**20:.0f} MiB: {peak / size:.2f} times as much."
    )
    return 0
