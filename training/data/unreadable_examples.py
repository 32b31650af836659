"""Unreadable examples: the next readable one takes their place, and they are counted."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from training.data.random_access import Source
from training.data.skip_counter import SkipCounter

# So many neighbors in a row are never all damaged by chance: the pipeline itself is wrong.
ATTEMPTS = 16


def counter_for(on_error: str, skip_counter: SkipCounter | None) -> SkipCounter | None:
    """Returns the counter of what is skipped, or None if an unreadable example raises its error.

    Args:
        on_error: "raise" or "skip".
        skip_counter: the counter of the run, or None to make one that nobody reads.

    Raises:
        ValueError: for any other `on_error`.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(
            f"Expected on_error to be one of 'raise' or 'skip'. Received: {on_error!r}."
        )
    return None if on_error == "raise" else skip_counter or SkipCounter()


def load_or_next(
    load: Callable[[tf.Tensor], Any], index: tf.Tensor, source: Source, skipped: SkipCounter
) -> Any:
    """Returns `load(index)`, or of the first example after it that loads without an error.

    Raises the error of `index` itself if it and the `ATTEMPTS` after it all fail.
    """
    candidates = (index + tf.range(ATTEMPTS + 1, dtype=tf.int64)) % source.num_examples
    loaded = _readable(load, candidates).concatenate(
        tf.data.Dataset.from_tensors(index).map(lambda one: (one, load(one)))
    )
    found, example = loaded.take(1).get_single_element()
    failed = (found - index) % source.num_examples
    with tf.control_dependencies([_count(index + tf.range(failed), source, skipped)]):
        return tf.nest.map_structure(tf.identity, example)


def load_or_blank(
    load: Callable[[tf.Tensor], Any],
    index: tf.Tensor,
    blank: Any,
    source: Source,
    skipped: SkipCounter,
) -> tuple[tf.Tensor, Any]:
    """Returns `(1.0, load(index))`, or `(0.0, blank)` if the example does not load."""
    loaded = _readable(load, index[None]).map(lambda _, example: (1.0, example))
    mask, example = (
        loaded.concatenate(tf.data.Dataset.from_tensors((0.0, blank))).take(1).get_single_element()
    )
    failed = tf.boolean_mask(index[None], mask[None] == 0)
    with tf.control_dependencies([_count(failed, source, skipped)]):
        return tf.identity(mask), tf.nest.map_structure(tf.identity, example)


def _readable(load, indices):
    dataset = tf.data.Dataset.from_tensor_slices(indices).map(lambda one: (one, load(one)))
    return dataset.ignore_errors()


def _count(indices, source, skipped):
    def count(failed):
        for index in failed:
            skipped.add(source.example_id(int(index)))
        return len(failed)

    return tf.cond(
        tf.size(indices) > 0,
        lambda: tf.numpy_function(count, [indices % source.num_examples], tf.int64),
        lambda: tf.zeros((), tf.int64),
    )
