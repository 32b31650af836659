"""Measures reading, decoding and augmenting images, and counts what a training needs of it."""

import dataclasses
import functools
import gc
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from unittest import mock

from benchmarks.harness import interleaved
from benchmarks.harness.report import machine, show
from keras_vit.export.verification.subprocesses import peak_memory
from keras_vit.training.errors import UsageError
from keras_vit.training.io.quiet_start import import_tensorflow

WARM_UP_BATCHES = 3


class Turn(NamedTuple):
    """Seconds per image of one turn, of all cores together and on the clock."""

    cpu: float
    wall: float


def compare_pipelines(
    images: str, image_size: int = 224, batch_size: int = 50, batches: int = 10, rounds: int = 15
) -> None:
    """Images per second of reading, decoding and augmenting, against other pipelines.

    Our training and evaluation pipelines run beside references on the same JPEGs, in one process
    and in turns. The comparison is of CPU time, which a busy machine and its number of cores
    disturb least: pipelines like these are bound by decoding, and threads only spread it.
    """
    import_tensorflow()
    from benchmarks.libraries import image_pipelines

    files, start = _jpegs_below(images), machine()
    makers = image_pipelines.pipelines(image_size)
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        image_pipelines.prepare(files, folder)
        calls = {
            (kind, name): functools.partial(_turn, make(folder, batch_size), batches, batch_size)
            for kind, named in makers.items()
            for name, make in named.items()
        }
        turns = interleaved.measure(calls, rounds)
        changes = [
            _moved_by_reduced_decoding(kind, named, folder, len(files))
            for kind, named in makers.items()
        ]
    show(rates(turns))
    show(changes)
    print(
        f"{len(files)} images, batches of {batch_size}, {image_size} pixels, {rounds} rounds; "
        f"medians, ratios within a round. {start}"
    )


def _jpegs_below(folder):
    """Returns the JPEGs in a folder and its sub-folders."""
    found = pathlib.Path(folder).rglob("*")
    images = sorted(path for path in found if path.suffix.lower() in (".jpg", ".jpeg"))
    if not images:
        raise UsageError(f"Expected JPEGs below {folder}. Found none")
    return images


def _turn(dataset, batches, batch_size):
    """Returns what so many batches of a pipeline take, after some that are not measured."""
    # The previous pipeline may still be filling its buffers.
    gc.collect()
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(0.1)
        busy = time.process_time() - before > 0.01
    iterator = iter(dataset)
    for _ in range(WARM_UP_BATCHES):
        next(iterator)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(batches):
        next(iterator)
    images = batches * batch_size
    return Turn((time.process_time() - cpu) / images, (time.perf_counter() - wall) / images)


def rates(turns: Mapping[tuple[str, str], Sequence[Turn]]) -> list[dict[str, str]]:
    """Returns the rows of the turns of every pipeline, by its part and name."""
    from benchmarks.libraries.image_pipelines import FLOOR, TUTORIAL

    cpu = {key: [turn.cpu for turn in each] for key, each in turns.items()}
    rows = []
    for (kind, name), each in turns.items():
        floor, tutorial = (
            interleaved.ratio(cpu[kind, other], cpu[kind, name]) for other in (FLOOR, TUTORIAL)
        )
        rows.append(
            {
                "pipeline": f"{kind}: {name}",
                "images per CPU s": f"{_rate(each, 'cpu'):.0f}",
                "images per s": f"{_rate(each, 'wall'):.0f}",
                "of decoding": f"{floor.median:.2f}",
                "of the tutorial": f"{tutorial.median:.2f}",
                "quartiles": tutorial.quartiles(),
            }
        )
    return rows


def _rate(turns, seconds):
    return 1 / statistics.median(getattr(turn, seconds) for turn in turns)


def _moved_by_reduced_decoding(kind, makers, folder, images):
    """Returns how far reduced decoding moves the pixels of so many images of a pipeline."""
    from benchmarks.libraries.image_pipelines import OURS, REDUCED

    whole, reduced = (next(iter(makers[name](folder, images))) for name in (OURS, REDUCED))
    moved = abs(whole["image"] - reduced["image"]).numpy() * 127.5
    return {
        "reduced decoding": kind,
        "mean difference of 255": f"{moved.mean():.2f}",
        "root mean square": f"{(moved**2).mean() ** 0.5:.2f}",
    }


def slow_store(latency: float = 50.0, batch_size: int = 64, seconds: float = 20.0) -> None:
    """Images per second with one and with many requests at a time, from a slow store.

    Every request for records waits for the store before it reads them from this machine's disk. The
    digits are small enough for the waiting to be all that counts.

    Args:
        latency: milliseconds until a request is answered.
        seconds: of each measurement.
    """
    start = machine()
    rows = []
    with tempfile.TemporaryDirectory() as data_dir:
        for place, remote in (("as on a disk", False), ("as in a store", True)):
            batches = _late_batches(remote, data_dir, latency, batch_size)
            next(batches)
            begin, images = time.monotonic(), 0
            while time.monotonic() - begin < seconds:
                next(batches)
                images += batch_size
            rate = images / (time.monotonic() - begin)
            rows.append({"read": place, "images/s": f"{rate:,.0f}"})
    show(rows)
    print(f"{latency:g} ms until a request is answered. {start}")


def _late_batches(remote, data_dir, latency, batch_size):
    tf = import_tensorflow()
    from keras_vit.training.data import open_dataset, records

    at_once = records.records_from

    def late(*place):
        waiting = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(0)),
            sleep_microseconds=tf.constant(int(1000 * latency), tf.int64),
            output_types=[tf.int32],
            output_shapes=[()],
        )
        spec = tf.TensorSpec((), tf.int32)
        waiting = tf.data.experimental.from_variant(waiting, spec)
        return waiting.flat_map(lambda _: at_once(*place))

    with mock.patch.object(records, "records_from", late):
        split = open_dataset("digits", data_dir).split("train")
        split.reader = split.reader._replace(remote=remote)
        preprocess = split.preprocess("decode|resize(8)|value_range(-1, 1)")
        return iter(split.train(preprocess, batch_size=batch_size, seed=0))


def first_batch(examples: int = 300_000_000, step: int = 0, batch_size: int = 1024) -> None:
    """Time and memory to the first batch of a set of any size.

    The images are simulated, so that what is measured is the order of the epoch: seconds of
    processors until the first batch of a run that begins at --step, and the peak of the process's
    memory.

    Args:
        examples: of the set.
        step: of the batch.
    """
    tf = import_tensorflow()
    from keras_vit.training.data import Dataset, Split, dataset_table
    from keras_vit.training.data.records import Reader

    def record(index):
        return tf.io.encode_png(tf.zeros((8, 8, 3), tf.uint8) + tf.cast(index % 251, tf.uint8))

    def parse(record, index):
        return {"image": record, "label": index % 10}

    spec = dataclasses.replace(dataset_table.row("cifar10"), name="simulated")
    split = Split(Dataset(spec, pathlib.Path()), "train", examples)
    split.reader = Reader(record, parse, str, dict)
    preprocess = split.preprocess("decode|resize(8)|value_range(-1, 1)")
    start = time.process_time()
    next(iter(split.train(preprocess, batch_size=batch_size, seed=0, start_step=step)))
    row = {
        "examples": examples,
        "step": step,
        "CPU-s": f"{time.process_time() - start:.2f}",
        "peak GiB": f"{peak_memory() / 2**30:.2f}",
    }
    show([row])
