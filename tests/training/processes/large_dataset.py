"""Prints the processor seconds to the first of 300 million simulated images, and the peak in GB."""

import dataclasses
import pathlib
import sys
import time

import tensorflow as tf

from training.data import pipeline, random_access

EXAMPLES = 300_000_000


def simulated(name, split, data_dir=None):
    spec = dataclasses.replace(random_access.dataset_lookup.get("cifar10"), name=name)

    def record(index):
        pixels = tf.zeros((8, 8, 3), tf.uint8) + tf.cast(index % 251, tf.uint8)
        return tf.io.encode_png(pixels)

    def parse(record, index):
        return {"image": record, "label": index % 10}

    return random_access.Source(spec, EXAMPLES, record, parse, str)


random_access.open_source = simulated
start = time.process_time()
dataset = pipeline.train_dataset(
    name="simulated",
    split="train",
    preprocess="decode|resize(8)|value_range(-1, 1)",
    batch_size=1024,
    seed=0,
    start_step=int(sys.argv[1]),
)
next(iter(dataset))
seconds = time.process_time() - start
# `getrusage` would count what the process had that started this one.
status = pathlib.Path("/proc/self/status").read_text().splitlines()
(peak,) = (line for line in status if line.startswith("VmHWM:"))
print(seconds, int(peak.split()[1]) / 2**20)
