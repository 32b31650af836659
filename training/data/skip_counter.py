"""The count of the examples that a run skipped because they cannot be read."""

import collections
import threading


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
