"""Unreadable examples: the next readable one takes their place, and they are counted."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable

import tensorflow as tf

# So many neighbours in a row are never all damaged by chance: the pipeline itself is wrong.
ATTEMPTS = 16


class SkipCounter:
    """Counts the examples that `on_error="skip"` replaced or masked, by their id.

    Pipelines read ahead, so the count runs ahead of the step by what is prefetched.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, example_id: str) -> None:
        with self._lock:
            self._counts[example_id] += 1

    def reset(self) -> None:
        with self._lock:
            self._counts.clear()

    @property
    def count(self) -> int:
        """How many times an example was skipped."""
        return sum(self.examples.values())

    @property
    def examples(self) -> dict[str, int]:
        """Times skipped of every example that was, by its id."""
        with self._lock:
            return dict(self._counts)


counter = SkipCounter()


def load_or_next(load: Callable, index: tf.Tensor, num_examples: int, example_id: Callable):
    """Returns `load(index)`, or of the first example after it that loads without an error.

    Raises the error of `index` itself if it and the `ATTEMPTS` after it all fail.
    """
    candidates = (index + tf.range(ATTEMPTS + 1, dtype=tf.int64)) % num_examples
    loaded = _readable(load, candidates).concatenate(
        tf.data.Dataset.from_tensors(index).map(lambda one: (one, load(one)))
    )
    found, example = loaded.take(1).get_single_element()
    failed = (found - index) % num_examples
    with tf.control_dependencies([_count(index + tf.range(failed), num_examples, example_id)]):
        return tf.nest.map_structure(tf.identity, example)


def load_or_blank(load: Callable, index: tf.Tensor, blank, example_id: Callable):
    """Returns `(1.0, load(index))`, or `(0.0, blank)` if the example does not load."""
    loaded = _readable(load, index[None]).map(lambda _, example: (1.0, example))
    mask, example = (
        loaded.concatenate(tf.data.Dataset.from_tensors((0.0, blank))).take(1).get_single_element()
    )
    failed = tf.boolean_mask(index[None], mask[None] == 0)
    with tf.control_dependencies([_count(failed, index + 1, example_id)]):
        return tf.identity(mask), tf.nest.map_structure(tf.identity, example)


def _readable(load: Callable, indices: tf.Tensor) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(indices).map(lambda one: (one, load(one)))
    return dataset.ignore_errors()


def _count(indices: tf.Tensor, num_examples, example_id: Callable) -> tf.Tensor:
    def count(failed):
        for index in failed:
            counter.add(example_id(int(index)))
        return len(failed)

    return tf.cond(
        tf.size(indices) > 0,
        lambda: tf.numpy_function(count, [indices % num_examples], tf.int64),
        lambda: tf.zeros((), tf.int64),
    )
