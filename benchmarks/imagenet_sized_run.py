"""A run of ImageNet's size, killed, resumed and evaluated.

Writes 1,281,167 JPEGs of 32x32 pixels with 1,000 planted classes in 1,024 files as a TFDS set, and
runs `pretrain.py` on it with a small model: the time until the first steps are done, the memory of
the process, a SIGKILL in the third epoch, resumption, evaluation on 50,000 images, and the speed
beside that of the same model on images that the system holds in memory. `--part=50` is a fiftieth,
`--epochs=0` writes the set.
"""

import argparse
import functools
import io
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.harness.command_line import add_shared, machine
from keras_vit.export.verification.subprocesses import peak_memory
from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.data.sets import prepare_datasets, tfds_folder
from keras_vit.training.errors import TrainingError
from keras_vit.training.io.quiet_start import import_tensorflow
from keras_vit.training.reporting.metrics_csv import metric_rows

TRAIN, VALIDATION, CLASSES, SHARDS = 1_281_167, 50_000, 1000, 1024
NAME, SIDE = "planted_classes", 32
# Few enough that the system holds them in memory.
_CACHED = 20_000
# Different pictures of a class: its images take turns, so that making a million costs minutes.
_PICTURES = 16


def add_options(parser: CommandParser) -> None:
    text = "for the data and the runs; kept"
    parser.add_argument("--directory", required=True, help=text)
    parser.add_argument("--part", type=int, default=1, help="divides images and files")
    parser.add_argument("--epochs", type=int, default=3, help="of the run")
    add_shared(parser, batch_size=256)


def run(options: argparse.Namespace) -> None:
    root, given = pathlib.Path(options.directory), (options.part, options.epochs)
    for name, value in rehearse(root, *given, options.batch_size):
        print(f"| {name} | {value} |", flush=True)
    print(machine())


def rehearse(
    root: pathlib.Path, part: int, epochs: int, batch_size: int
) -> Iterator[tuple[str, str]]:
    """Yields what was measured, and its number with a unit; the arguments are the command's.

    Raises `TrainingError` if a run ends otherwise than it should.
    """
    train, validation = TRAIN // part, VALIDATION // part
    shards = max(2, SHARDS // part)
    start = time.monotonic()
    _write(root / "data", train, validation, max(10, CLASSES // part), shards)
    yield "images written", f"{train + validation:,} in {time.monotonic() - start:.0f} s"
    size = sum(file.stat().st_size for file in (root / "data").rglob("*") if file.is_file())
    yield "size of the set", f"{size / 1e9:.2f} GB in {2 * shards:,} files"
    if not epochs:
        return

    epoch = train // batch_size
    run, steps = root / "run", epochs * epoch
    watch = functools.partial(_watch, root / "data", batch_size, epoch)
    killed = watch(run, steps, kill_after=2 * epoch + epoch // 2)
    yield "first row of metrics", f"{killed['first row']}, {max(1, epoch // 10)} steps"
    yield "peak memory", killed["peak"]
    yield "speed", killed["speed"]
    yield "killed after step", f"{int(_rows(run)[-1]['step']):,} of {steps:,}, in the third epoch"
    resumed = watch(run, steps)
    yield "first row after resumption", resumed["first row"]
    yield "peak memory, with evaluation", resumed["peak"]
    last = {name: float(_rows(run)[-1][f"eval_{name}"]) for name in ("count", "top1")}
    yield "evaluated", f"{int(last['count']):,} images, top-1 {100 * last['top1']:.2f} %"
    split = f"--config.train_split=train[:{min(train, _CACHED)}]"
    yield "speed on cached images", watch(root / "cached", max(2, epoch // 3), split)["speed"]


def _watch(data_dir, batch_size, epoch, run, steps, *more, kill_after=0):
    """Runs the training in a process and returns texts on its "first row", "peak" and "speed".

    The speed is that from the first row of metrics to the last. After update `kill_after` the
    process is killed; 0 lets it end.
    """
    every, crop = max(1, epoch // 10), f"decode|central_crop({SIDE})"
    command = [
        *(sys.executable, "-m", "training", f"--workdir={run}"),
        f"--config=pretrain:ViT-B/16,imagenet2012,data=tfds:{NAME}",
    ]
    changes = {
        "data_dir": data_dir,
        "batch_size": batch_size,
        "total_steps": steps,
        "model.name": "",
        "model.image_size": SIDE,
        "model.patch_size": 16,
        "model.hidden_size": 64,
        "model.mlp_dim": 128,
        "model.num_heads": 2,
        "model.num_layers": 1,
        "model.representation_size": 64,
        "train_preprocess": f"{crop}|flip_lr|value_range(-1, 1)",
        "eval_preprocess": f"{crop}|value_range(-1, 1)",
        "precision": "float32",
        "jit_compile": "off",
        "steps_per_call": 10,
        "log_every_steps": every,
        "checkpoint_every_steps": every,
        "eval_every_steps": 0,
        "optimizer.warmup_steps": max(1, epoch // 4),
    }
    command += [f"--config.{key}={value}" for key, value in changes.items()]
    found = len(_rows(run))
    start = time.monotonic()
    seen, peak = [], 0
    with subprocess.Popen([*command, *more]) as process:
        while process.poll() is None:
            peak = max(peak, peak_memory(process.pid))
            written = _rows(run)
            # A run that resumes drops the rows after its state.
            found = min(found, len(written))
            if len(written) > found:
                found = len(written)
                step = int(written[-1]["step"])
                seen.append((time.monotonic(), step))
                if 0 < kill_after <= step:
                    process.kill()
            time.sleep(0.05)
    expected = -signal.SIGKILL if kill_after else 0
    if process.returncode != expected or len(seen) < 2:
        raise TrainingError(
            f"Expected rows of metrics in {run} and exit status {expected}. Received: {len(seen)} "
            f"rows and {process.returncode}."
        )
    clock, count = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    return {
        "first row": f"after {seen[0][0] - start:.1f} s",
        "peak": f"{peak / 2**30:.2f} GiB",
        "speed": f"{count * batch_size / clock:,.0f} images/s",
    }


def _rows(run):
    """Returns the rows of a run's metrics that are whole, none before it has any."""
    file = run / "metrics.csv"
    return metric_rows(file) if file.exists() else []


def _write(data_dir, train, validation, classes, shards):
    """Writes the set as `keras-vit data prepare` writes photos, unless it is there."""
    import_tensorflow()
    import tensorflow_datasets as tfds
    from PIL import Image

    if tfds_folder.find(NAME, prepare_datasets.VERSION, data_dir):
        return
    features = {
        "image": tfds.features.Image(shape=(SIDE, SIDE, 3), encoding_format="jpeg"),
        "label": tfds.features.ClassLabel(num_classes=classes),
    }

    @functools.cache
    def encoded(label, number):
        # The colors of the class in 4x4 cells, and the noise of the picture.
        colors = np.random.default_rng([1, label]).integers(40, 216, (4, 4, 3))
        pattern = colors.repeat(SIDE // 4, 0).repeat(SIDE // 4, 1)
        noise = np.random.default_rng([2, label, number]).integers(-24, 25, (SIDE, SIDE, 3))
        pixels = np.clip(pattern + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(stream := io.BytesIO(), "jpeg", quality=90)
        return stream.getvalue()

    def examples(count, first):
        for number in range(count):
            label, picture = number % classes, first + number // classes % _PICTURES
            yield number, {"image": io.BytesIO(encoded(label, picture)), "label": label}

    # Validation images show other pictures.
    splits = {"train": examples(train, 0), "validation": examples(validation, _PICTURES)}
    prepare_datasets.write(NAME, data_dir, features, splits, "Planted classes.", shards)
