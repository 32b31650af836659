"""The .npz files of Big Transfer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.variable_names import Weight

# Some files keep the counters that TensorFlow appended to its modules' names.
COUNTER = re.compile(r"(standardized_conv2d|group_norm|conv2d)_\d+")


@dataclass(frozen=True)
class BiTLayout(FileLayout):
    """The arrays of a BiT file.

    Attributes:
        spelled: dict of published names without counters to the file's own.
    """

    title = "BiT's .npz"
    aliases: ClassVar = {"head": ("resnet/head",)}
    spelled: dict[str, str] = field(default_factory=dict)

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "BiTLayout | None":
        """Returns the layout of a file, or None if it is not one of BiT's."""
        if not any(name.startswith("resnet/") for name in shapes):
            return None
        return cls({COUNTER.sub(r"\1", name): name for name in shapes})

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        return [FileArray(self.spelled.get(w.name, w.name), w.shape, (w,)) for w in weights]

    def pack(self, array: FileArray, weights: Sequence[Weight]) -> np.ndarray:
        """Returns the value of one array of the file, float32."""
        return np.reshape(array.weights[0].value(), array.shape)
