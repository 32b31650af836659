"""Unreadable examples: the next readable one takes their place, and they are counted."""

import collections
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from training.data.dataset import Split


# So many neighbors in a row are never all damaged by chance: the pipeline itself is wrong.
ATTEMPTS = 16


class SkipCounter:
    """Counts the examples of a run that `on_error="skip"` replaced or masked, by their id.

    Pipelines read ahead, so the count runs ahead of the step by what is prefetched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, example_id: str) -> None:
        """Counts an example."""
        with self._lock:
            self._counts[example_id] += 1

    @property
    def count(self) -> int:
        """How many times an example was skipped."""
        return sum(self.examples.values())

    @property
    def examples(self) -> dict[str, int]:
        """Times skipped of every example that was, by its id."""
        with self._lock:
            return dict(self._counts)


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
    load: Callable[[tf.Tensor], Any], index: tf.Tensor, split: "Split", skipped: SkipCounter
) -> Any:
    """Returns `load(index)`, or of the first example after it that loads without an error.

    Raises the error of `index` itself if it and the `ATTEMPTS` after it all fail.
    """
    candidates = (index + tf.range(ATTEMPTS + 1, dtype=tf.int64)) % split.num_examples
    loaded = _readable(load, candidates).concatenate(
        tf.data.Dataset.from_tensors(index).map(lambda one: (one, load(one)))
    )
    found, example = loaded.take(1).get_single_element()
    failed = (found - index) % split.num_examples
    with tf.control_dependencies([_count(index + tf.range(failed), split, skipped)]):
        return tf.nest.map_structure(tf.identity, example)


def load_or_blank(
    load: Callable[[tf.Tensor], Any],
    index: tf.Tensor,
    blank: Any,
    split: "Split",
    skipped: SkipCounter,
) -> tuple[tf.Tensor, Any]:
    """Returns `(1.0, load(index))`, or `(0.0, blank)` if the example does not load."""
    loaded = _readable(load, index[None]).map(lambda _, example: (1.0, example))
    mask, example = (
        loaded.concatenate(tf.data.Dataset.from_tensors((0.0, blank))).take(1).get_single_element()
    )
    failed = tf.boolean_mask(index[None], mask[None] == 0)
    with tf.control_dependencies([_count(failed, split, skipped)]):
        return tf.identity(mask), tf.nest.map_structure(tf.identity, example)


def _readable(load, indices):
    dataset = tf.data.Dataset.from_tensor_slices(indices).map(lambda one: (one, load(one)))
    return dataset.ignore_errors()


def _count(indices, split, skipped):
    def count(failed):
        for index in failed:
            skipped.add(split.example_id(int(index)))
        return len(failed)

    return tf.cond(
        tf.size(indices) > 0,
        lambda: tf.numpy_function(count, [indices % split.num_examples], tf.int64),
        lambda: tf.zeros((), tf.int64),
    )
