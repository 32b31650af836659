"""The .npz files of Big Transfer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from keras_vit.checkpoints.base_layouts import FileArray, FileLayout
from keras_vit.checkpoints.official_names import Weight

# Some files keep the counters that TensorFlow appended to its modules' names.
COUNTER = re.compile(r"(standardized_conv2d|group_norm|conv2d)_\d+")


@dataclass(frozen=True)
class BiTLayout(FileLayout):
    """The arrays of a BiT file; `spelled` maps published names without counters to its own."""

    title = "BiT's .npz"
    spelled: dict[str, str] = field(default_factory=dict)

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "BiTLayout | None":
        if not any(name.startswith("resnet/") for name in shapes):
            return None
        return cls({COUNTER.sub(r"\1", name): name for name in shapes})

    def spellings(self, part: str) -> tuple[str, ...]:
        return part, f"resnet/{part}"

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        return [FileArray(self.spelled.get(w.name, w.name), w.shape, (w,)) for w in weights]
