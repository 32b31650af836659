"""Errors of checkpoints."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence


class CheckpointError(ValueError):
    """A checkpoint is damaged or does not fit the model; the model is unchanged.

    Attributes:
        missing: names of arrays that the model needs and the file lacks.
        left_over: names of arrays in the file that the model has no place for.
        mis_shaped: names of arrays whose shape in the file is not the model's.
    """

    def __init__(
        self,
        message: str,
        missing: Iterable[str] = (),
        left_over: Iterable[str] = (),
        mis_shaped: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.missing = tuple(missing)
        self.left_over = tuple(left_over)
        self.mis_shaped = tuple(mis_shaped)


class DownloadError(OSError):
    """A checkpoint could not be downloaded."""


def some(names: Sequence[str]) -> str:
    """Returns the first names, for a message."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


@contextlib.contextmanager
def reading(path: str | os.PathLike, name: str | None = None) -> Iterator[None]:
    """Turns what a damaged file raises, any kind of error, into a `CheckpointError`."""
    try:
        yield
    except (CheckpointError, FileNotFoundError):
        raise
    except Exception as error:
        what = f"Array {name!r} of {path}" if name else str(path)
        raise CheckpointError(
            f"{what} is damaged or truncated ({error}). Download or write the file again."
        ) from error
