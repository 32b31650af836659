"""What every format of checkpoints answers.

For another format, copy a file of this folder, `timm.py` for example, and add its class to
`FORMATS` in `__init__.py`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.variable_names import Weight


class FileLayout:
    """How a published format names and arranges the arrays of a model.

    Attributes:
        title: of the format, in messages.
        aliases: {published name of a module: the names that its files have for it}.
        prefix: before every name that belongs to the model.
        patch_embedding: its name of that module after the prefix, or None if it has none.
        is_torch: bool, whether it is a PyTorch format, whose kernels are transposed and whose
            images are normalized in many ways; the others' are in [-1, 1].
    """

    title: ClassVar[str]
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    prefix = ""
    patch_embedding: ClassVar[str | None] = None
    is_torch: ClassVar[bool] = False

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "FileLayout | None":
        """Returns the layout of a file, or None if the file is of another format.

        Args:
            shapes: {name: shape} of the file's arrays.
            grid: (rows, columns) of the file's position embeddings if stated.
        """
        raise NotImplementedError

    def owns(self, name: str) -> bool:
        """Returns whether an array of the file belongs to the model."""
        return True

    def spellings(self, part: str) -> tuple[str, ...]:
        """Returns the names that `part`, an array or module in `skip`, can have in a file."""
        spelled = (part, *self.aliases.get(part, ()))
        return (*spelled, *(self.prefix + name for name in spelled))

    def patch_arrays(self) -> tuple[str, str, tuple[int, ...]]:
        """Returns the names of the patch kernel and bias, and the kernel's axes.

        The axes are those of rows, columns, channels and width in the file.
        """
        module = f"{self.prefix}{self.patch_embedding}"
        if self.is_torch:
            return f"{module}.weight", f"{module}.bias", (2, 3, 1, 0)
        return f"{module}/kernel", f"{module}/bias", (0, 1, 2, 3)

    def folded(self, source: Source) -> Source:
        """Returns the file with what a plain model has no place for folded into other arrays.

        Raises:
            CheckpointError: if it computes what no model here does.
        """
        return source

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        """Returns the arrays that a file of this layout holds for a model.

        Args:
            weights: of the model.

        Raises:
            CheckpointError: if the format has no place for one of the weights.
        """
        raise NotImplementedError
