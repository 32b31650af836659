"""`python -m benchmarks first_batch`: from nothing to the first batch of a set of any size.

The images are simulated, so that what is measured is the order of the epoch: seconds of processors
until the first batch of a run that begins at `--step`, and the peak of the process's memory.
"""

import dataclasses
import pathlib
import time
from collections.abc import Sequence

from benchmarks.harness import machine, options
from training.reporting.table import Table


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit code."""
    parser = options.parser("first_batch", __doc__, batch_size=1024)
    parser.add_argument("--examples", type=int, default=300_000_000)
    parser.add_argument("--step", type=int, default=0)
    chosen = parser.parse_args(argv)
    seconds = processor_seconds(chosen.examples, chosen.step, chosen.batch_size)
    row = [chosen.examples, chosen.step, f"{seconds:.2f}"]
    row.append(f"{machine.peak_memory() / 2**30:.2f}")
    print(Table(["examples", "step", "CPU-s", "peak GiB"], [row]).markdown())
    return 0


def processor_seconds(examples: int, step: int, batch_size: int) -> float:
    """Returns the seconds of processors until the batch of a step is there.

    Args:
        examples: of the set.
        step: of the batch.
        batch_size: images of it.
    """
    import tensorflow as tf

    from training.data import Dataset, Split, registry
    from training.data.records import Reader

    def record(index):
        return tf.io.encode_png(tf.zeros((8, 8, 3), tf.uint8) + tf.cast(index % 251, tf.uint8))

    def parse(record, index):
        return {"image": record, "label": index % 10}

    spec = dataclasses.replace(registry.row("cifar10"), name="simulated")
    reader = Reader(record, parse, str, dict)
    split = Split(Dataset(spec, pathlib.Path()), "train", examples, lambda: reader)
    preprocess = split.preprocess("decode|resize(8)|value_range(-1, 1)")
    start = time.process_time()
    dataset = split.train(preprocess, batch_size=batch_size, seed=0, start_step=step)
    next(iter(dataset))
    return time.process_time() - start
