"""Failures that end a run with one line for the person who started it."""


class TrainingError(Exception):
    """A failure whose message says what happened and what to do next.

    Attributes:
        exit_code: status of the process that ends with it.
    """

    exit_code = 1


class Diverged(TrainingError):
    """A run whose loss became infinite, undefined or too large: its rate or data are at fault."""


class UsageError(TrainingError):
    """A wrong command line, config, environment or work directory, found before any training."""

    exit_code = 2


class Disagreement(UsageError):
    """What all processes of a job found wrong with it at the same moment."""


class Interrupted(TrainingError):
    """A run that was asked to stop, and stopped with its state saved."""

    exit_code = 143
