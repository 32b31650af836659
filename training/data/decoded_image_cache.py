"""Keeps decoded images in memory, so that only the first epoch decodes.

An image is kept before any random operation, so a step does not depend on what was read before it:
a run that starts anywhere has the same bits.
"""

import logging
import pathlib
from collections.abc import Callable

import numpy as np
import psutil
import tensorflow as tf

from ..errors import UsageError
from .opened_dataset import Split
from .traced_functions import as_it_stands

# The mean size of so many images stands for all, which may take this part of the free memory.
_SAMPLE, _PART = 64, 0.75
_PART_OF_AUTO = 0.5  # Leaves more to others, as nobody asked for it.
logger = logging.getLogger("keras_vit")
_CGROUP = pathlib.Path("/sys/fs/cgroup")


def keep_decoded(
    load: Callable, split: Split, decode: Callable[[tf.Tensor], tf.Tensor], mode: str = "on"
) -> tuple[Callable, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns `load` of decoded images, each read once, and whether an index is in memory.

    `load` maps an int64 index, and a function that reads its record, to the example. `mode` "on"
    raises `UsageError` if the decoded images do not fit into memory; "auto" keeps those that do,
    and decodes the others anew, which gives the same bits.
    """
    record = split.reader.record

    def decoded(index, read):
        example = load(index, read)
        return example | {"image": decode(example["image"])}

    indices = np.linspace(0, split.num_examples - 1, _SAMPLE).astype(np.int64)
    sample = tf.data.Dataset.from_tensor_slices(indices).map(
        as_it_stands(lambda index: decoded(index, lambda: record(index))),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    kept_below = _number_that_fits(sample, split.num_examples, mode)
    # Sizes may be None.
    specs = sample.element_spec
    unread = tf.constant([""] * len(specs))
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, unread)

    def from_memory(index, read):
        kept = tf.ensure_shape(table.lookup(index), [len(specs)])

        def first():
            loaded = decoded(index, read)

            def insert():
                content = tf.stack([tf.io.serialize_tensor(loaded[key]) for key in specs])
                with tf.control_dependencies([table.insert(index, content)]):
                    return tf.constant(True)

            inserted = tf.cond(index < kept_below, insert, lambda: tf.constant(False))
            with tf.control_dependencies([inserted]):
                return tf.nest.map_structure(tf.identity, loaded)

        def again():
            return {
                key: tf.ensure_shape(tf.io.parse_tensor(kept[place], spec.dtype), spec.shape)
                for place, (key, spec) in enumerate(specs.items())
            }

        return tf.cond(tf.strings.length(kept[0]) == 0, first, again)

    return from_memory, lambda index: tf.strings.length(table.lookup(index)[0]) > 0


def keep_prepared(dataset: tf.data.Dataset, split: Split) -> tf.data.Dataset:
    """Returns batches of a whole split, read and prepared once if they fit into memory."""
    image = dataset.element_spec["image"]
    size = split.num_examples * image.shape[1:].num_elements() * image.dtype.size
    return dataset.cache() if size <= _PART_OF_AUTO / 2 * free_memory() else dataset


def _number_that_fits(sample, num_examples, mode):
    """Returns how many images, by the size of a sample, fit into memory; see `keep_decoded`."""
    free = free_memory()
    found = [each["image"].size for each in sample.ignore_errors().as_numpy_iterator()]
    wanted = float(np.mean(found)) * num_examples if found else 0.0
    if mode == "auto":
        fitting = num_examples * min(1.0, _PART_OF_AUTO * free / max(wanted, 1.0))
        if fitting < num_examples:
            logger.info(
                "%d of %d decoded images find room in memory; the others are decoded in every "
                "epoch. Smaller copies of the photos train faster.",
                *(fitting, num_examples),
            )
        return int(fitting)
    if wanted > _PART * free:
        raise UsageError(
            f"config.cache: the {num_examples} decoded images would take about "
            f"{wanted / 1e9:.1f} GB. Expected at most {_PART:.0%} of the {free / 1e9:.1f} GB of "
            "memory that are free. Set config.cache=auto, or shrink the images of the data set."
        )
    return num_examples


def free_memory() -> int:
    """Returns the free bytes of the machine or, if less, of the container (control groups 2)."""
    free = psutil.virtual_memory().available
    try:
        limit, held = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        rows = (line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        # Files that the system keeps in memory make room for others.
        return min(free, limit - held + int(dict(rows)["inactive_file"]))
    except (OSError, ValueError):
        return free  # no container, or one without a limit ("max")
