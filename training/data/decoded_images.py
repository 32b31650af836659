"""Decoded images in memory, so that an epoch after the first decodes none.

They are kept when they are first read, before any random operation. So a step does not depend on
what was read before it: a run that starts anywhere has the same bits.
"""

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_vit.training.data.traced_functions import as_it_stands
from keras_vit.training.errors import UsageError

if TYPE_CHECKING:
    from keras_vit.training.data.opened_dataset import Split

# Images whose mean size stands for all, and the part of the free memory that all may take.
_SAMPLE, _PART = 64, 0.75
_MEMINFO = pathlib.Path("/proc/meminfo")
_CGROUP = pathlib.Path("/sys/fs/cgroup")


class DecodedImages:
    """The images and labels of a split, by int64 index.

    Args:
        spec: the shapes and types of an image and its label; heights and widths may be None.
    """

    def __init__(self, spec: tuple[tf.TensorSpec, tf.TensorSpec]):
        self._spec = spec
        unread = tf.constant([""] * len(spec))
        self._table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, unread)

    def has(self, index: tf.Tensor) -> tf.Tensor:
        """Returns whether the image at `index` has been loaded, bool."""
        return tf.strings.length(self._table.lookup(index)[0]) > 0

    def get(self, index: tf.Tensor, load: Callable[[], Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the image and label at `index`; they are what `load` returns, once."""
        kept = tf.ensure_shape(self._table.lookup(index), [len(self._spec)])

        def first():
            loaded = load()
            content = tf.stack([tf.io.serialize_tensor(part) for part in loaded])
            with tf.control_dependencies([self._table.insert(index, content)]):
                return tuple(map(tf.identity, loaded))

        def again():
            return tuple(
                tf.ensure_shape(tf.io.parse_tensor(kept[place], spec.dtype), spec.shape)
                for place, spec in enumerate(self._spec)
            )

        return tf.cond(tf.strings.length(kept[0]) == 0, first, again)


def check_fits(split: "Split", decode: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """Raises `UsageError` if all images of a split, by the size of some, do not fit into memory."""
    free = free_memory()
    indices = np.linspace(0, split.num_examples - 1, _SAMPLE).astype(np.int64)

    def size(index):
        return tf.size(decode(split.read(index)["image"]), tf.int64)

    sizes = tf.data.Dataset.from_tensor_slices(indices).map(as_it_stands(size)).ignore_errors()
    found = list(sizes.as_numpy_iterator())
    wanted = float(np.mean(found)) * split.num_examples if found else 0.0
    if free is not None and wanted > _PART * free:
        raise UsageError(
            f"config.cache: the {split.num_examples} decoded images would take about "
            f"{wanted / 1e9:.1f} GB. Expected at most {_PART:.0%} of the {free / 1e9:.1f} GB of "
            "memory that are free. Set config.cache=False, or shrink the images of the data set."
        )


def free_memory() -> int | None:
    """Returns the bytes of memory that are free for this process, or None off Linux.

    The least of what the machine has and what its container may take (control groups, version 2).
    """
    if not _MEMINFO.is_file():
        return None
    free = 1024 * _fields(_MEMINFO)["MemAvailable:"]
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        held = int((_CGROUP / "memory.current").read_text())
        # Files that the system keeps in memory make room for others.
        held -= _fields(_CGROUP / "memory.stat")["inactive_file"]
    except (OSError, ValueError):
        return free  # no container, or one without a limit ("max")
    return min(free, limit - held)


def _fields(file: pathlib.Path) -> dict[str, int]:
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows}
