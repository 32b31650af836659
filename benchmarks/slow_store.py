"""`python -m benchmarks slow_store`: one and many requests at a time, from a store that is slow.

Every request for records waits for the store before it reads them from this machine's disk. The
digits are small enough for the waiting to be all that counts.
"""

import dataclasses
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from benchmarks.harness import machine, options
from training.reporting.table import Table


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit code."""
    parser = options.parser("slow_store", __doc__, batch_size=64, seconds=20.0)
    parser.add_argument("--latency", type=float, default=50.0, help="milliseconds (50)")
    chosen = parser.parse_args(argv)
    start = machine.describe()
    with tempfile.TemporaryDirectory() as data_dir:
        rows = [
            [place, f"{_images_per_second(_batches(remote, data_dir, chosen), chosen):,.0f}"]
            for place, remote in (("as on a disk", False), ("as in a store", True))
        ]
    print(Table(["read", "images/s"], rows).markdown())
    print(f"\n{chosen.latency:g} ms until a request is answered. {start}")
    return 0


def _batches(remote: bool, data_dir: str, chosen: Any) -> Iterator[Any]:
    import tensorflow as tf

    from training.data import open_dataset, records

    at_once = records.records_from

    def late(*place):
        waiting = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(0)),
            sleep_microseconds=tf.constant(int(1000 * chosen.latency), tf.int64),
            output_types=[tf.int32],
            output_shapes=[()],
        )
        spec = tf.TensorSpec((), tf.int32)
        waiting = tf.data.experimental.from_variant(waiting, spec)
        return waiting.flat_map(lambda _: at_once(*place))

    with mock.patch.object(records, "records_from", late):
        opened = open_dataset("digits", data_dir).split("train")
        reader = opened.reader._replace(remote=remote)
        split = dataclasses.replace(opened, open_reader=lambda: reader)
        preprocess = split.preprocess("decode|resize(8)|value_range(-1, 1)")
        return iter(split.train(preprocess, batch_size=chosen.batch_size, seed=0))


def _images_per_second(batches: Iterator[Any], chosen: Any) -> float:
    next(batches)
    start, images = time.monotonic(), 0
    while time.monotonic() - start < chosen.seconds:
        next(batches)
        images += chosen.batch_size
    return images / (time.monotonic() - start)
