"""`python -m benchmarks dress_rehearsal`: a run of ImageNet's size, with small images.

Writes 1,281,167 JPEGs of 32x32 pixels with 1,000 planted classes in 1,024 files as a TFDS set, and
runs `pretrain.py` on it with a small model: the time until the first steps are done, the memory of
the process, a SIGKILL in the third epoch, resumption, evaluation on 50,000 images, and the speed
beside that of the same model on images that the system holds in memory. `--part=50` is a fiftieth,
`--epochs=0` writes the set.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks import planted_classes
from benchmarks.harness import machine, options
from training.reporting.read_metrics import metric_rows

TRAIN, VALIDATION, CLASSES, SHARDS = 1_281_167, 50_000, 1000, 1024
# Few enough that the system holds them.
_CACHED = 20_000


class Watched(NamedTuple):
    """What was seen of a process.

    Attributes:
        status: its exit status.
        first_row: seconds until its first row of metrics was written.
        peak: bytes of memory that it held at most.
        speed: images per second, and seconds of processors per thousand images, from its first row
            to its last.
    """

    status: int
    first_row: float
    peak: int
    speed: str


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit code."""
    parser = options.parser("dress_rehearsal", __doc__, batch_size=256)
    parser.add_argument("--directory", required=True, help="for the data and the runs; kept")
    parser.add_argument("--part", type=int, default=1, help="divides images and files")
    parser.add_argument("--epochs", type=int, default=3)
    chosen = parser.parse_args(argv)
    for name, value in rehearse(chosen):
        print(f"| {name} | {value} |", flush=True)
    print(machine.describe())
    return 0


def rehearse(chosen: Any) -> Iterator[tuple[str, str]]:
    """Yields what was measured, and its number with a unit.

    Args:
        chosen: the options of the command.

    Raises:
        RuntimeError: if a run ends otherwise than it should.
    """
    root = pathlib.Path(chosen.directory)
    train, validation = TRAIN // chosen.part, VALIDATION // chosen.part
    classes, shards = max(10, CLASSES // chosen.part), max(2, SHARDS // chosen.part)
    start = time.monotonic()
    planted_classes.write(root / "data", train, validation, classes, shards)
    yield "images written", f"{train + validation:,} in {time.monotonic() - start:.0f} s"
    size = sum(file.stat().st_size for file in (root / "data").rglob("*") if file.is_file())
    yield "size of the set", f"{size / 1e9:.2f} GB in {2 * shards:,} files"
    if not chosen.epochs:
        return

    epoch = train // chosen.batch_size
    run, steps = root / "run", chosen.epochs * epoch
    killed = watch(chosen, run, steps, epoch, kill_after=2 * epoch + epoch // 2)
    _expect(killed.status == -signal.SIGKILL, f"the run to be killed, not {killed}")
    yield "first row of metrics", f"after {killed.first_row:.1f} s, {max(1, epoch // 10)} steps"
    yield "peak memory", f"{killed.peak / 2**30:.2f} GiB"
    yield "speed", killed.speed
    yield "killed after step", f"{int(rows(run)[-1]['step']):,} of {steps:,}, in the third epoch"
    resumed = watch(chosen, run, steps, epoch)
    _expect(resumed.status == 0, f"the run to go on to its end, not {resumed}")
    yield "first row after resumption", f"after {resumed.first_row:.1f} s"
    yield "peak memory, with evaluation", f"{resumed.peak / 2**30:.2f} GiB"
    last = {name: float(rows(run)[-1][f"eval_{name}"]) for name in ("count", "top1")}
    yield "evaluated", f"{int(last['count']):,} images, top-1 {100 * last['top1']:.2f} %"
    part = f"--config.train_split=train[:{min(train, _CACHED)}]"
    cached = watch(chosen, root / "cached", max(2, epoch // 3), epoch, part)
    _expect(cached.status == 0, f"the run on cached images to end, not {cached}")
    yield "speed on cached images", cached.speed


def watch(
    chosen: Any, run: pathlib.Path, steps: int, epoch: int, *more: str, kill_after: int = 0
) -> Watched:
    """Runs the training in a process of its own and returns what was seen of it.

    Args:
        chosen: the options of the command.
        run: the run directory.
        steps: updates in all.
        epoch: updates of an epoch.
        *more: further arguments.
        kill_after: update after which the process is killed; 0 lets it end.
    """
    every = max(1, epoch // 10)
    command = [sys.executable, "-m", "training", f"--workdir={run}"]
    data = f"tfds:{planted_classes.NAME}:{planted_classes.VERSION}"
    crop = f"decode|central_crop({planted_classes.SIDE})"
    command += [f"--config=pretrain:ViT-B/16,imagenet2012,data={data}"]
    changes = {
        "data_dir": run.parent / "data",
        "batch_size": chosen.batch_size,
        "total_steps": steps,
        "model.name": "",
        "model.image_size": planted_classes.SIDE,
        "model.patch_size": 16,
        "model.hidden_size": 64,
        "model.mlp_dim": 128,
        "model.num_heads": 2,
        "model.num_layers": 1,
        "model.representation_size": 64,
        "train_preprocess": f"{crop}|flip_lr|value_range(-1, 1)",
        "eval_preprocess": f"{crop}|value_range(-1, 1)",
        "precision": "float32",
        "jit_compile": "False",
        "steps_per_call": 10,
        "log_every_steps": every,
        "checkpoint_every_steps": every,
        "eval_every_steps": 0,
        "optimizer.warmup_steps": max(1, epoch // 4),
    }
    command += [f"--config.{key}={value}" for key, value in changes.items()]
    found = len(rows(run))
    start = time.monotonic()
    seen, peak = [], 0
    with subprocess.Popen([*command, *more]) as process:
        while process.poll() is None:
            peak = max(peak, machine.peak_memory_of(process.pid))
            written = rows(run)
            # A run that resumes drops the rows after its state.
            found = min(found, len(written))
            if len(written) > found:
                found = len(written)
                seen.append((time.monotonic(), _cpu(process.pid), int(written[-1]["step"])))
                if kill_after and seen[-1][2] >= kill_after:
                    process.kill()
            time.sleep(0.05)
    _expect(len(seen) > 1, f"rows of metrics in {run}, not exit status {process.returncode}")
    clock, cpu, count = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    images = count * chosen.batch_size
    speed = f"{images / clock:,.0f} images/s, {1000 * cpu / images:.2f} CPU-s per 1,000"
    return Watched(process.returncode, seen[0][0] - start, peak, speed)


def rows(run: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows of a run's metrics that are whole, none before it has any."""
    file = run / "metrics.csv"
    if not file.exists():
        return []
    return metric_rows(file)


def _cpu(process: int) -> float:
    """Returns the seconds of processors that a process has used, or 0 once it is gone."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _expect(holds, what):
    if not holds:
        raise RuntimeError(f"Expected {what}.")
