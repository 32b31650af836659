"""The layouts of .npz files: the original's and its successors', and BiT's."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from keras_vit.checkpoints.layout import PLAIN, STACKED, FileArray, FileLayout, Grid, Shapes
from keras_vit.checkpoints.weights_of_model import BLOCK, POSITION_TABLE, Weight

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
        class_position: bool, whether that table has entries for class
            tokens. Without them the table is added before these tokens are
            prepended, and a token's own array holds the sum.
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

    def detect(self, shapes: Shapes, grid: Grid | None = None) -> "Layout | None":
        for prefix in PREFIXES:
            names = {n[len(prefix) :]: s for n, s in shapes.items() if n.startswith(prefix)}
            if any(n.startswith("Transformer/") for n in names):
                break
        else:
            return None
        blocks = [n for n in names if n.startswith("Transformer/encoderblock")]
        positions = next((n for n in POSITION_NAMES if n in names), POSITION_TABLE)
        return Layout(
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
        table = next((w for w in weights if w.name == POSITION_TABLE), None)
        count = 0 if self.class_position else getattr(table and table.positions, "class_token", 0)
        value = table.value() if table and count else np.empty(0)
        entries = {"cls": value[:, :1], "dist": value[:, 1:2]} if count else {}

        def absorb(values, _, own):
            return values[0] + own

        for weight in weights:
            name, shape, packing = self._name(weight.name), tuple(weight.shape), PLAIN
            if self.scanned and BLOCK.fullmatch(weight.name):
                stacks.setdefault(re.sub(r"_\d+/", "/", name, count=1), []).append(weight)
                continue
            if self.group_norm_rank == 4 and GROUP_NORM.fullmatch(weight.name):
                shape = (1, 1, 1, *shape)
            elif weight.name in entries:
                packing = PLAIN._replace(pack=partial(absorb, own=entries[weight.name]))
            elif count and weight is table:
                shape = (1, shape[1] - count, shape[2])
                packing = PLAIN._replace(pack=lambda values, _: values[0][:, count:])
            arrays.append(FileArray(name, shape, (weight,), packing))
        for name, stack in stacks.items():
            arrays.append(FileArray(name, (len(stack), *stack[0].shape), tuple(stack), STACKED))
        return arrays

    def _name(self, name):
        if name == POSITION_TABLE:
            name = self.positions
        if self.renumbered and BLOCK.fullmatch(name):
            for old, new in RENUMBERED.items():
                name = name.replace(f"/{old}/", f"/{new}/")
        return self.prefix + name


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

    def detect(self, shapes: Shapes, grid: Grid | None = None) -> "BiTLayout | None":
        if not any(name.startswith("resnet/") for name in shapes):
            return None
        return BiTLayout({COUNTER.sub(r"\1", name): name for name in shapes})

    def spellings(self, part: str) -> tuple[str, ...]:
        return part, f"resnet/{part}"

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        return [FileArray(self.spelled.get(w.name, w.name), w.shape, (w,)) for w in weights]
