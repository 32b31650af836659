"""Unreadable examples: the next readable one takes their place, and they are counted."""

import collections
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

logger = logging.getLogger("keras_vit")

# More damaged neighbors than this are no accident: the pipeline itself is wrong.
ATTEMPTS = 16


class SkipCounter:
    """Counts the examples of a run that were replaced or not counted, by their id.

    Pipelines read ahead, so the count runs ahead of the step by what is prefetched. If it is
    `named`, a warning names each.
    """

    def __init__(self, named: bool = False) -> None:
        self._named = named
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, example_id: str) -> None:
        """Counts an example."""
        with self._lock:
            self._counts[example_id] += 1
            if self._named and self._counts[example_id] == 1:
                logger.warning("Left out: %s cannot be read as an image.", example_id)

    @property
    def examples(self) -> dict[str, int]:
        """Times skipped of every example that was, by its id."""
        with self._lock:
            return dict(self._counts)


def counter_for(on_error: str, skip_counter: SkipCounter | None = None) -> SkipCounter | None:
    """Returns the counter of what is skipped, a new one if need be, or None to raise errors."""
    if on_error not in ("raise", "skip"):
        raise ValueError(
            f"Expected on_error to be one of 'raise' or 'skip'. Received: {on_error!r}."
        )
    return None if on_error == "raise" else skip_counter or SkipCounter()


def load_or_next(
    load: Callable[[tf.Tensor], Any], index: tf.Tensor, split: Any, skipped: SkipCounter
) -> Any:
    """Returns `load(index)`, or of the first example of a `Split` after it that loads.

    Raises the error of `index` itself if it and the `ATTEMPTS` after it all fail.
    """

    def attempt(failed):
        return failed, load((index + failed) % split.num_examples)

    own_error = tf.data.Dataset.range(1).map(attempt)
    failed, example = _first(tf.data.Dataset.range(ATTEMPTS + 1).map(attempt), own_error)
    return _after_counting(index, failed, split, skipped, example)


def load_or_blank(
    load: Callable[[tf.Tensor], Any],
    index: tf.Tensor,
    blank: Any,
    split: Any = None,
    skipped: SkipCounter | None = None,
) -> tuple[tf.Tensor, Any]:
    """Returns (True, `load(index)`), or (False, `blank`) if it does not load.

    With a `split` and a counter, it counts that.
    """
    loaded = tf.data.Dataset.from_tensors(index).map(lambda one: (np.int64(0), load(one)))
    failed, example = _first(loaded, tf.data.Dataset.from_tensors((np.int64(1), blank)))
    if split and skipped:
        example = _after_counting(index, failed, split, skipped, example)
    return failed == 0, example


def _first(attempts: tf.data.Dataset, otherwise: tf.data.Dataset) -> Any:
    """Returns the first element that is no error, that of `otherwise` if all are."""
    return attempts.ignore_errors().concatenate(otherwise).take(1).get_single_element()


def _after_counting(index, failed, split, skipped, example):
    """Returns `example`, once the `failed` examples from `index` on are counted."""

    def count(index, failed):
        for number in range(failed):
            skipped.add(split.example_id(int(index + number) % split.num_examples))
        return failed

    counted = tf.cond(
        failed > 0, lambda: tf.numpy_function(count, [index, failed], tf.int64), lambda: failed
    )
    with tf.control_dependencies([counted]):
        return tf.nest.map_structure(tf.identity, example)
