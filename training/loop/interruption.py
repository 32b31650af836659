"""Ends a run after the step at hand when a signal asks for it."""

import signal
import threading


class StopRequest:
    """A context: SIGTERM and the first SIGINT set `received`, a second SIGINT interrupts."""

    def __init__(self):
        self.received = 0  # number of the signal
        self._before = {}

    def __enter__(self):
        # Python allows handlers in its main thread only.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                # A shell has its background jobs ignore Ctrl-C.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        self.received = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])
