"""The .npz files of the original implementation and of big_vision.

The same arrays have been published in several spellings, all flat with "/"
between the names of modules. `Layout` describes a spelling, `Layout.detect`
recognizes it, and a file is written back as it was read.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keras_vit.checkpoints.base_layouts import BLOCK, FileArray, FileLayout
from keras_vit.checkpoints.official_names import POSITION_TABLE, Weight

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
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "Layout | None":
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
