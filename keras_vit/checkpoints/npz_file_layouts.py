"""Maps a model's weights and the arrays of a file to each other: the original's .npz, and BiT's."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from keras_vit.checkpoints.npz_and_safetensors import Grid, Source
from keras_vit.checkpoints.weights_of_model import POSITION_TABLE, Weight
from keras_vit.layers.position_embeddings import PositionEmbedding

# The arrays' shapes by name.
Shapes = Mapping[str, tuple[int, ...]]
BLOCK = re.compile(r"Transformer/encoderblock_(\d+)/(.+)")


def _reshape(array, weight):
    return [np.reshape(array, weight.shape)]


@dataclass(frozen=True)
class FileArray:
    """One array of a checkpoint file and the weights that it holds, in order."""

    name: str  # in the file
    shape: tuple[int, ...]  # in the file
    weights: tuple[Weight, ...]
    # From (array, *weights) to an array of the published shape for each of them.
    unpack: Callable[..., list[np.ndarray]] = _reshape

    @property
    def names(self) -> tuple[str, ...]:
        """The array's name in the file and the published ones of its weights."""
        return (self.name, *(weight.name for weight in self.weights))

    @property
    def positions(self) -> PositionEmbedding | int | None:
        """The way to resize the array as position embeddings, or None."""
        return self.weights[0].positions if self.unpack is _reshape else None


class FileLayout:
    """The names and the arrangement of a model's arrays in a published format."""

    title: ClassVar[str]  # in messages
    prefix = ""  # before every name that belongs to the model
    # Whether the table of positions has an entry for the class token; None if some have.
    class_entry: ClassVar[bool | None] = None

    @classmethod
    def detect(cls, shapes: Shapes, grid: Grid | None = None) -> "FileLayout | None":
        """Returns the layout of a file of these arrays, or None if it is of another format.

        `grid` is the (rows, columns) of its position embeddings, if it is stated.
        """
        raise NotImplementedError

    def owns(self, name: str) -> bool:
        """Returns whether an array of the file belongs to the model."""
        return name.startswith(self.prefix)

    def spellings(self, part: str) -> tuple[str, ...]:
        """Returns the names that `part`, an array or module in `skip`, can have in a file."""
        return part, self.prefix + part

    def patch_arrays(self) -> tuple[str, str, tuple[int, ...]]:
        """Returns the names of the patch kernel and bias, and the kernel's axes.

        The axes are those of rows, columns, channels and width in the file.
        """
        return f"{self.prefix}embedding/kernel", f"{self.prefix}embedding/bias", (0, 1, 2, 3)

    def fold(self, source: Source) -> None:
        """Folds what a plain model has no place for into the file's other arrays."""

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        """Returns the arrays that a file of this layout holds for a model's weights.

        Raises CheckpointError if the format has no place for one of them.
        """
        raise NotImplementedError

    def pack(self, array: FileArray, weights: Sequence[Weight]) -> np.ndarray:
        """Returns the value of one of `file_arrays(weights)`, float32 of its shape."""
        return np.reshape(array.weights[0].value(), array.shape)


PREFIXES = ("opt/target/", "params/img/", "img/", "params/", "")

# The places of the table of position embeddings.
POSITION_NAMES = (POSITION_TABLE, "Transformer/pos_embedding", "pos_embedding")

# The original counted all modules of a block, its successors each class by itself.
RENUMBERED = {
    "LayerNorm_2": "LayerNorm_1",
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "MlpBlock_3": "MlpBlock_0",
}

GROUP_NORM = re.compile(r"(.*/)?gn(_root|_proj|\d)/(scale|bias)")
SCANNED = "Transformer/encoderblock/"


@dataclass(frozen=True)
class Layout(FileLayout):
    """A spelling of the published arrays.

    Attributes:
        prefix: str before every name, "params/" for example. Arrays without it are the state of
            an optimizer, or of another model trained along.
        renumbered: bool, whether the modules of a block are counted class by
            class ("LayerNorm_1") instead of all together ("LayerNorm_2").
        positions: the name of the table of position embeddings.
        class_position: bool, whether that table has an entry for the class
            token. Without one the table is added before the class token is
            prepended, and the token's own array holds the sum.
        scanned: bool, whether the blocks are stacked in arrays with a leading
            axis of blocks, as `jax.lax.scan` leaves them.
        group_norm_rank: 1 or 4, the rank of the arrays of group normalization.
    """

    title = "the original's .npz"
    prefix: str = ""
    renumbered: bool = False
    positions: str = POSITION_TABLE
    class_position: bool = True
    scanned: bool = False
    group_norm_rank: int = 1

    @classmethod
    def detect(cls, shapes: Shapes, grid: Grid | None = None) -> "Layout | None":
        for prefix in PREFIXES:
            names = {n[len(prefix) :]: s for n, s in shapes.items() if n.startswith(prefix)}
            if any(n.startswith("Transformer/") for n in names):
                break
        else:
            return None
        blocks = [n for n in names if n.startswith("Transformer/encoderblock")]
        positions = next((n for n in POSITION_NAMES if n in names), POSITION_TABLE)
        return cls(
            prefix=prefix,
            renumbered=any("MultiHeadDotProductAttention_0/" in n for n in blocks),
            positions=positions,
            class_position="cls" not in names or not _is_grid(names.get(positions), grid),
            scanned=any(n.startswith(SCANNED) for n in blocks),
            group_norm_rank=4 if len(names.get("gn_root/scale", ())) == 4 else 1,
        )

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        arrays: list[FileArray] = []
        stacks: dict[str, list[Weight]] = {}
        for weight in weights:
            name = self._name(weight.name)
            if self.scanned and BLOCK.fullmatch(weight.name):
                stacks.setdefault(re.sub(r"_\d+/", "/", name, count=1), []).append(weight)
            else:
                arrays.append(FileArray(name, self._shape(weight), (weight,)))
        for name, stack in stacks.items():
            shape = (len(stack), *stack[0].shape)
            arrays.append(FileArray(name, shape, tuple(stack), _unstack))
        return arrays

    def pack(self, array: FileArray, weights: Sequence[Weight]) -> np.ndarray:
        if array.unpack is _unstack:
            return np.stack([weight.value() for weight in array.weights])
        (weight,) = array.weights
        value = weight.value()
        if not self.class_position:
            table = next((w for w in weights if w.name == POSITION_TABLE), None)
            if weight.name == "cls" and table is not None:
                value = value + table.value()[:, :1]
            elif weight is table and getattr(table.positions, "class_token", False):
                value = value[:, 1:]
        return np.reshape(value, array.shape)

    def _name(self, name):
        if name == POSITION_TABLE:
            name = self.positions
        if self.renumbered and BLOCK.fullmatch(name):
            for old, new in RENUMBERED.items():
                name = name.replace(f"/{old}/", f"/{new}/")
        return self.prefix + name

    def _shape(self, weight):
        shape = tuple(weight.shape)
        if self.group_norm_rank == 4 and GROUP_NORM.fullmatch(weight.name):
            return (1, 1, 1, *shape)
        if weight.name == POSITION_TABLE and not self.class_position:
            return (1, shape[1] - int(weight.positions.class_token), shape[2])
        return shape


def _unstack(array, *weights):
    return [np.reshape(part, w.shape) for part, w in zip(array, weights, strict=True)]


def _is_grid(shape, grid):
    if shape is None or len(shape) != 3:
        return False
    return shape[1] == (grid[0] * grid[1] if grid else math.isqrt(shape[1]) ** 2)


# Some files keep the counters that TensorFlow appended to its modules' names.
COUNTER = re.compile(r"(standardized_conv2d|group_norm|conv2d)_\d+")


@dataclass(frozen=True)
class BiTLayout(FileLayout):
    """The arrays of a BiT file; `spelled` maps published names without counters to its own."""

    title = "BiT's .npz"
    spelled: dict[str, str] = field(default_factory=dict)

    @classmethod
    def detect(cls, shapes: Shapes, grid: Grid | None = None) -> "BiTLayout | None":
        if not any(name.startswith("resnet/") for name in shapes):
            return None
        return cls({COUNTER.sub(r"\1", name): name for name in shapes})

    def spellings(self, part: str) -> tuple[str, ...]:
        return part, f"resnet/{part}"

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        return [FileArray(self.spelled.get(w.name, w.name), w.shape, (w,)) for w in weights]
