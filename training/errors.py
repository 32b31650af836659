"""Failures that end a run with one line for the person who started it."""

import errno
import os
import re
import signal


class TrainingError(Exception):
    """A failure whose message says what happened and what to do next."""

    exit_code = 1  # of the process that ends with it


class Diverged(TrainingError):
    """A run whose loss became infinite, undefined or too large: its rate or data are at fault."""


class UsageError(TrainingError):
    """A wrong command line, config, environment or work directory, found before any training."""

    exit_code = 2


class Disagreement(UsageError):
    """A fault of a job that all its processes found at the same moment."""


class Interrupted(TrainingError):
    """A run that was asked to stop, and stopped with its state saved.

    `received` is the number of the signal, 0 if another process of the job received it.
    """

    def __init__(self, message: str, received: int = 0):
        super().__init__(message)
        self.exit_code = 128 + (received or signal.SIGTERM)


# A file system's reasons, which may stand anywhere in a long message.
_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
_OF_FILE_SYSTEMS = [*map(os.strerror, _CODES)]

# Numbers of errors, and the names of graphs and operations in a message of TensorFlow.
_LEFT_OUT = re.compile(
    r"\[Errno \d+\] |\{\{.*?\}\} ?| \[Op:\w+\]( name: ?)?"
    r"|Error in user-defined function passed to \S+ transformation with iterator: \S+ "
)
_PLACES = ("Graph execution error", "Detected at node", "<stack", 'File "', "[[")


def first_line(error: object, longest: int = 200) -> str:
    """Returns the first `longest` characters of an error, and a file system's reason in the rest.

    Runtimes have long messages. Lines that say where in a graph it was are left out.
    """
    text = _LEFT_OUT.sub("", str(error))
    lines = (line.strip() for line in text.splitlines())
    said = (line for line in lines if line and not line.startswith(_PLACES))
    line = next(said, type(error).__name__)
    line = line if len(line) <= longest else f"{line[:longest]} …"
    reasons = (each for each in _OF_FILE_SYSTEMS if each in text and each not in line)
    return ": ".join([line, *reasons])
