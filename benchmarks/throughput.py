"""`python -m benchmarks throughput`: Figure 11, speed and memory against the image size.

For every model and image size: the images per second at the best batch size, and the largest
batch that fits. Each is measured in a process of its own; on a CPU a batch "fits" if that process
stays below --memory.
"""

import argparse
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from benchmarks.harness.progress import Bar
from benchmarks.harness.table import markdown

# The models and sizes of the paper's figure.
FIGURE_MODELS = (
    "BiT-R50x1",
    "BiT-R50x2",
    "ViT-B/32",
    "ViT-L/32",
    "ViT-B/16",
    "ViT-L/16",
    "ViT-H/14",
    "BiT-R152x4",
)
FIGURE_SIZES = (64, 128, 224, 384, 512)
GIB = 2**30
# How a process ends that asked for too much: killed, by us or the system, or aborted by malloc.
OUT_OF_MEMORY = (-signal.SIGKILL, -signal.SIGABRT)


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


class Process:
    """A measuring process that is ended when it takes too much memory.

    Args:
        task: what `benchmarks.harness.throughput_worker` takes.
        memory: bytes that the process may hold, or 0 for no limit.
    """

    def __init__(self, task, memory):
        command = [sys.executable, "-m", "benchmarks.harness.throughput_worker", json.dumps(task)]
        # Closed with the process.
        self._messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            cwd=pathlib.Path(__file__).parents[1],
        )
        if memory:
            threading.Thread(target=self._watch, args=(memory,), daemon=True).start()
        self.device = (self._answer() or {}).get("device", "")

    def close(self):
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._messages.close()

    def _watch(self, memory):
        page = os.sysconf("SC_PAGE_SIZE")
        status = pathlib.Path(f"/proc/{self._process.pid}/statm")
        while self._process.poll() is None:
            try:
                resident = int(status.read_text().split()[1]) * page
            except (OSError, IndexError):
                return
            if resident > memory:
                self._process.kill()
                return
            time.sleep(0.01)

    def _answer(self):
        line = self._process.stdout.readline()
        if line.endswith("\n"):
            return json.loads(line)
        status = self._process.wait()
        if status not in OUT_OF_MEMORY:
            self._messages.seek(0)
            last = (self._messages.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"The measuring process ended with status {status}: {last}")
        return None

    def rate(self, batch):
        """Returns images per second at a batch size, or None if it does not fit."""
        try:
            print(batch, file=self._process.stdin, flush=True)
        except OSError:
            return None
        return (self._answer() or {}).get("images_per_second")


def measure(start, model, image_size, batches, say=lambda text: None):
    """Measures one model at one image size.

    Args:
        start: function that returns a new `Process`; a batch that does not fit ends one.
        model, image_size: for the result.
        batches: increasing batch sizes to try. After the first that does not fit, the gap to
            the one before is halved until it is an eighth.
        say: is told what happens.

    Returns:
        A `Measurement`.
    """
    rates, limit = {}, None
    process = start()
    try:
        for batch in batches:
            say(f"{model} {image_size} px, batch {batch}")
            rate = process.rate(batch)
            if rate is None:
                limit = batch
                break
            rates[batch] = rate
        low = max(rates, default=0)
        while limit is not None and limit - low > max(low // 8, 1):
            process.close()
            process = start()
            middle = (low + limit) // 2
            say(f"{model} {image_size} px, batch {middle}")
            rate = process.rate(middle)
            if rate is None:
                limit = middle
            else:
                rates[middle], low = rate, middle
    finally:
        process.close()
    best = max(rates, key=rates.get, default=0)
    return Measurement(model, image_size, best, rates.get(best, 0.0), low, limit is not None)


def draw(measurements, title):
    """Returns the figure: rate and largest batch against the image size, a line for each model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    for model in dict.fromkeys(each.model for each in measurements):
        own = [each for each in measurements if each.model == model and each.best_batch]
        sizes = [each.image_size for each in own]
        (line,) = left.plot(sizes, [each.images_per_second for each in own], "o-", label=model)
        right.plot(sizes, [each.largest_batch for each in own], "-", color=line.get_color())
        for limited, marker in ((True, "o"), (False, "^")):
            points = [each for each in own if each.limited == limited]
            right.plot(
                [each.image_size for each in points],
                [each.largest_batch for each in points],
                marker,
                color=line.get_color(),
            )
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


def _list_of(make):
    def convert(text):
        return [make(part) for part in text.split(",")]

    convert.__name__ = f"list of {make.__name__}"
    return convert


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks throughput",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--output", default="throughput", help="folder for throughput.csv, .md and .png"
    )
    parser.add_argument(
        "--models",
        type=_list_of(str),
        default=FIGURE_MODELS,
        help="names, separated by commas; default those of the paper's figure",
    )
    parser.add_argument("--image_sizes", type=_list_of(int), default=FIGURE_SIZES)
    parser.add_argument(
        "--max_batch", type=int, default=1024, help="powers of 2 up to here are tried"
    )
    parser.add_argument("--mode", choices=("infer", "train"), default="infer")
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--jit_compile", action="store_true", help="compile with XLA")
    parser.add_argument("--repeats", type=int, default=3, help="timed batches; the median counts")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; default all")
    parser.add_argument(
        "--memory",
        type=float,
        default=4.0,
        help="GiB of main memory that a measurement may take; 0 is no limit. On a GPU its own "
        "memory is the limit",
    )
    return parser


def _write(measurements, output, title):
    output.mkdir(parents=True, exist_ok=True)
    names = list(Measurement._fields)
    header = ["model", "image size", "images/s", "at batch", "largest batch"]
    rows = [
        [
            each.model,
            str(each.image_size),
            f"{each.images_per_second:.4g}",
            str(each.best_batch),
            str(each.largest_batch) if each.limited else f"≥ {each.largest_batch}",
        ]
        for each in measurements
    ]
    text = f"{title}\n\n{markdown(header, rows)}\n"
    temporary = {name: output / f".{name}" for name in ("throughput.csv", "throughput.md")}
    with temporary["throughput.csv"].open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(measurements)
    temporary["throughput.md"].write_text(text, encoding="utf-8")
    temporary["throughput.png"] = output / ".throughput.png"
    draw(measurements, title).savefig(temporary["throughput.png"], format="png")
    for name, path in temporary.items():
        os.replace(path, output / name)
    return text


def main(argv=None):
    """Measures, prints the table and writes it with its figure; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.max_batch < 1 or options.repeats < 1 or min(options.image_sizes) < 1:
        parser.error("expected --max_batch, --repeats and --image_sizes to be at least 1")
    from keras_vit import variants

    try:
        for model in options.models:
            variants.arguments_of(model)
    except ValueError as error:
        parser.error(str(error))
    batches = [2**power for power in range(options.max_batch.bit_length())]
    measurements, devices = [], set()
    cells = [(model, size) for model in options.models for size in options.image_sizes]
    with Bar(len(cells)) as bar:
        for model, image_size in cells:
            task = {
                "model": model,
                "image_size": image_size,
                "train": options.mode == "train",
                "precision": options.precision,
                "jit_compile": options.jit_compile,
                "repeats": options.repeats,
                "threads": options.threads,
            }

            def start(task=task):
                process = Process(task, int(options.memory * GIB))
                devices.add(process.device)
                return process

            measurements.append(measure(start, model, image_size, batches, bar.note))
            bar.advance()
    kind = "Training step" if options.mode == "train" else "Inference"
    device = ", ".join(sorted(filter(None, devices))) or "no device"
    limit = f", {options.memory:g} GiB" if options.memory and "CPU" in devices else ""
    xla = ", XLA" if options.jit_compile else ""
    title = f"{kind} on {device}{limit}, {options.precision}{xla}"
    print(_write(measurements, pathlib.Path(options.output), title), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
