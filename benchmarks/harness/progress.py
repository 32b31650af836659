"""A bar on the terminal's error stream, so that tables can be piped away."""

import sys


class Bar:
    """Shows how much of a known number of pieces is done.

    Args:
        total: int, pieces of work.
    """

    def __init__(self, total):
        self.total = total

    def __enter__(self):
        from rich import console, progress

        self._bar = progress.Progress(
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.description}"),
            console=console.Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=self.total)
        self._bar.start()
        return self

    def __exit__(self, *exception):
        self._bar.stop()

    def note(self, text):
        """Says what is going on."""
        self._bar.update(self._task, description=text)

    def advance(self):
        """Counts one piece as done."""
        self._bar.advance(self._task)
