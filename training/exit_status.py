"""Running a command: its log, and the status that its process exits with.

0 after success, 1 after a failure, 2 for what the person at the keyboard has to change, 130 and
143 after being interrupted, 141 where nobody reads on what is printed.
"""

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from training.command_options import as_called
from training.errors import TrainingError, first_line
from training.io.stores import local_options

_BAD_USE = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


def command_main(
    make_parser: Callable[[], argparse.ArgumentParser],
    run: Callable[[argparse.Namespace], int | None],
) -> Callable[..., int]:
    """Returns the `main` of a command: (arguments=None) -> exit status of the process.

    Args:
        make_parser: of the command's options.
        run: does what they ask for. It may return a status; None is success.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        def parse_and_run() -> int | None:
            options = make_parser().parse_args(arguments)
            with local_options(options):
                return run(options)

        return status_of(parse_and_run)

    return main


def status_of(run: Callable[[], int | None]) -> int:
    """Returns what a process exits with that does `run`.

    An expected failure prints one line, "error: …", to standard error.

    Args:
        run: may return a status; None is success.
    """
    try:
        with _log_on_stderr():
            return run() or 0
    except TrainingError as error:
        message, status = str(error), error.exit_code
    except _BAD_USE as error:
        message, status = str(error), 2
    except BrokenPipeError:
        raise
    except OSError as error:
        message, status = str(error), 1
    except KeyboardInterrupt:
        message, status = "interrupted", 130
    except Exception as error:
        # Such as memory that TensorFlow was asked for and does not have.
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None or not isinstance(error, tensorflow.errors.OpError):
            raise
        message, status = first_line(error), 1
    print(as_called(f"error: {message}"), file=sys.stderr)
    return status


def exit_process(main: Callable[[], int]) -> NoReturn:
    """Ends the process with the status of `main`; without a word where its output is closed.

    A reader may leave early, as `head` does.
    """
    try:
        try:
            status = main()
        except SystemExit as stop:
            status = stop.code  # type: ignore[assignment]
        sys.stdout.flush()
    except BrokenPipeError:
        # Python prints what is left when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    sys.exit(status)


class _StderrHandler(logging.Handler):
    """Writes to what `sys.stderr` is at that moment: a progress bar replaces it for its time."""

    def emit(self, record):
        print(self.format(record), file=sys.stderr, flush=True)


@contextlib.contextmanager
def _log_on_stderr() -> Iterator[None]:
    logger = logging.getLogger("training")
    level, propagate = logger.level, logger.propagate
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
