"""The error of every checkpoint that cannot be loaded."""

from collections.abc import Iterable


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
