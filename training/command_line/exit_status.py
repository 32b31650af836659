"""The log of a command, and the status that its process exits with.

0 after success, 1 after a failure, 2 for what the person at the keyboard has to change, 130 after
Ctrl-C, 143 after SIGTERM, 141 if the reader of the output has closed it.
"""

import _thread
import contextlib
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from ..errors import Interrupted, TrainingError, first_line

_NO_SUCH_FILE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_BAD_USE = (ValueError, PermissionError, *_NO_SUCH_FILE)


def status_of(run: Callable[[], int | None], debug: bool = False, verbose: bool = False) -> int:
    """Calls `run`, which may return a status, and returns the exit status of the process.

    An expected failure prints one line, "error: …", to standard error; an interruption its message.
    With `debug` the traceback stands before that line, as with VIT_DEBUG=1; with `verbose` the log
    has every detail.
    """
    try:
        with _log_on_stderr(logging.DEBUG if verbose else logging.INFO):
            return run() or 0
    except BrokenPipeError:
        raise
    except Exception as error:
        line, status = _line_and_status(error)
        if not line:
            raise
        if debug or os.environ.get("VIT_DEBUG") == "1":
            traceback.print_exc()
    print(line, file=sys.stderr)
    return status


def _line_and_status(error):
    """Returns what to print of an expected failure and what to exit with; "" for other errors."""
    if isinstance(error, Interrupted):
        return str(error), error.exit_code
    if isinstance(error, TrainingError):
        return f"error: {error}", error.exit_code
    if isinstance(error, (*_BAD_USE, OSError)):
        return f"error: {_one_line(error)}", 2 if isinstance(error, _BAD_USE) else 1
    # TensorFlow may have been asked for more memory than there is.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and isinstance(error, tensorflow.errors.OpError):
        return f"error: {first_line(error)}", 1
    return "", 1


def _one_line(error):
    """Returns the message of a library without the frames before and the arguments after it."""
    text = re.sub(r"\x1b\[\d+m|\[Errno \d+\] ", "", str(error))
    text = re.split(r"\n\s*Arguments received by ", text)[0]
    return " ".join(re.split(r"(?m)^\s*\w+(?:Error|Exception): ", text)[-1].split())


# Wakes a thread that sleeps; what Windows has instead waits until it is awake.
_SEND = getattr(signal, "pthread_kill", lambda _, number: _thread.interrupt_main(number))


def exit_process(main: Callable[[], int], signals: Sequence[int] = (signal.SIGINT,)) -> NoReturn:
    """Ends the process with the status of `main`.

    Prints "interrupted" after one of `signals`, and nothing if the reader of the output, such as
    `head`, has closed it.
    """
    received: list[int] = []

    def interrupt(number, _):
        received.append(number)
        raise KeyboardInterrupt

    def interrupt_again(lost):
        # Python ignores it in callbacks, such as JAX's of garbage collection.
        if issubclass(lost.exc_type, KeyboardInterrupt) and received:
            sleeper = threading.main_thread().ident
            threading.Timer(0.1, _SEND, (sleeper, received[-1])).start()
        else:
            sys.__unraisablehook__(lost)

    for number in signals:
        # A shell has its background jobs ignore Ctrl-C.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    sys.unraisablehook = interrupt_again
    try:
        try:
            status = main()
        except SystemExit as stop:
            status = stop.code  # type: ignore[assignment]
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not received:
            received.append(signal.SIGINT)
        # A library may turn an interruption into an error of its own.
        if not received:
            raise
        status = 1
    # So that callbacks of atexit finish after Ctrl-C.
    sys.unraisablehook = sys.__unraisablehook__
    if received and status:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        print("interrupted", file=sys.stderr)
        status = 128 + received[-1]
    sys.exit(status)


class _StderrHandler(logging.Handler):
    """Writes to the current `sys.stderr`, which a progress bar replaces while it is shown."""

    def emit(self, record):
        print(self.format(record), file=sys.stderr, flush=True)


@contextlib.contextmanager
def _log_on_stderr(shown: int) -> Iterator[None]:
    logger = logging.getLogger("keras_vit")
    level, propagate = logger.level, logger.propagate
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(shown)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
