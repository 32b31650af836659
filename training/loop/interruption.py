"""Requests to stop, from a scheduler (SIGTERM) or a keyboard (SIGINT)."""

import signal
import threading


class StopRequest:
    """A context in which SIGTERM and the first SIGINT are noted rather than obeyed at once.

    A second SIGINT interrupts as usual.

    Attributes:
        received: whether a signal has come.
    """

    def __init__(self):
        self.received = False
        self._before = {}

    def __enter__(self):
        # Python allows handlers in its main thread only.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        self.received = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])
