"""Maps the arrays of a published file and the weights of a model to each other.

For another format, copy a file of `formats`, `timm.py` for example, and add its class to
`FORMATS` there.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from keras_vit.checkpoints.npz_and_safetensors import CheckpointError, Source
from keras_vit.checkpoints.official_names import POSITION_TABLE, PositionTable, Weight

BLOCK = re.compile(r"Transformer/encoderblock_(\d+)/(.+)")
PROJECTED = re.compile(r".*/(query|key|value)/kernel")
# The modules of a block in the order of the forward pass, and LayerScale's, y = gamma * f(x).
_BLOCK = (
    "LayerNorm_0",
    *(f"MultiHeadDotProductAttention_1/{part}" for part in ("query", "key", "value", "out")),
    "LayerNorm_2",
    "MlpBlock_3/Dense_0",
    "MlpBlock_3/Dense_1",
    "LayerScale_0",
    "LayerScale_1",
)
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}
# LayerScale and the last projection of f.
SCALED = {"LayerScale_0": _BLOCK[4], "LayerScale_1": _BLOCK[7]}


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
    def positions(self) -> PositionTable | int | None:
        """The way to resize the array as position embeddings, or None."""
        return self.weights[0].positions if self.unpack is _reshape else None


class FileLayout:
    """The names and the arrangement of a model's arrays in a published format."""

    title: ClassVar[str]  # in messages
    prefix = ""  # before every name that belongs to the model

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "FileLayout | None":
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

        Raises:
            CheckpointError: if the format has no place for one of the weights.
        """
        raise NotImplementedError

    def pack(self, array: FileArray, weights: Sequence[Weight]) -> np.ndarray:
        """Returns the value of one of `file_arrays(weights)`, float32 of its shape."""
        return np.reshape(array.weights[0].value(), array.shape)


@dataclass(frozen=True)
class TorchLayout(FileLayout):
    """A PyTorch format: names with dots, transposed kernels, images of any normalization."""

    prefixes: ClassVar[tuple[str, ...]] = ("",)  # that the names of an encoder can have
    marks: ClassVar[tuple[str, ...]]  # names after the prefix that tell the format
    # One for each spelling: {published name of a module or an array: the format's after the
    # prefix}, {} for the number of the block. Weights of one name share the array.
    tables: ClassVar[tuple[Mapping[str, str], ...]]
    classifier: ClassVar[str] = "classifier"  # the name of the head
    unused: ClassVar[tuple[str, ...]] = ()  # arrays that pre-training alone needs
    # Of this file: the prefix, the table with it, and whether there is a head.
    prefix: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    classified: bool = False

    @classmethod
    def detect(
        cls, shapes: Mapping[str, tuple[int, ...]], grid: tuple[int, int] | None = None
    ) -> "TorchLayout | None":
        # Of a file's spellings, that which most of its names have.
        for prefix in cls.prefixes:
            if all(prefix + mark in shapes for mark in cls.marks):
                names = {name.removesuffix(".weight") for name in shapes}
                tables = [{n: prefix + own for n, own in table.items()} for table in cls.tables]
                found = [sum(own.format(0) in names for own in t.values()) for t in tables]
                modules = {**tables[found.index(max(found))], "head": cls.classifier}
                return cls(prefix, modules, f"{cls.classifier}.weight" in shapes)
        return None

    def owns(self, name: str) -> bool:
        return name not in [self.prefix + unused for unused in self.unused]

    def spellings(self, part: str) -> tuple[str, ...]:
        return *super().spellings(part), self.modules.get(part, part)

    def patch_arrays(self) -> tuple[str, str, tuple[int, ...]]:
        module = self.modules["embedding"]
        return f"{module}.weight", f"{module}.bias", (2, 3, 1, 0)

    def fold(self, source: Source) -> None:
        """Folds LayerScale into the projections; gives positions a batch axis."""
        arrays = source.arrays
        for scale, scaled in SCALED.items():
            pattern = re.escape(self.modules.get(scale, "")).replace(r"\{\}", r"(\d+)")
            for name in filter(source.has_numbers, list(arrays)):
                if match := re.fullmatch(pattern, name):
                    module, gamma = self.modules[scaled].format(match[1]), arrays[name]
                    targets = [n for n in (f"{module}.weight", f"{module}.bias") if n in arrays]
                    fits = [arrays[target].shape[:1] == gamma.shape for target in targets]
                    if len(targets) == 2 and all(fits) and all(map(source.has_numbers, targets)):
                        for target in targets:
                            arrays[target] = (arrays[target].T * gamma).T
                        del arrays[name]
        positions = self.modules[POSITION_TABLE]
        if len(source.shapes.get(positions, ())) == 2:
            arrays[positions] = arrays[positions][None]

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        shared: dict[str, list[Weight]] = {}
        for weight in weights:
            shared.setdefault(self._name(weight.name), []).append(weight)
        return [_torch_array(name, *parts) for name, parts in shared.items()]

    def _name(self, name):
        block = BLOCK.fullmatch(name)
        module, _, leaf = (block[2] if block else name).rpartition("/")
        if name in self.modules:
            return self.modules[name]
        if module not in self.modules or leaf not in LEAVES:
            raise CheckpointError(
                f"{self.title} has no place for the model's {name}: it holds plain Vision "
                "Transformers. Use an .npz or .keras file for this model."
            )
        return f"{self.modules[module].format(block and block[1])}.{LEAVES[leaf]}"


def in_blocks(blocks: str, names: str) -> dict[str, str]:
    """Returns a table of a block's modules of these names, LayerScale's last, if any."""
    pairs = zip(_BLOCK, names.split(), strict=False)
    return {published: f"{blocks}.{{}}.{own}" for published, own in pairs}


def _torch_array(name, weight, *others):
    """Returns the `FileArray` of weights, of projections one after the other, as PyTorch's."""
    shape, parts = tuple(weight.shape), (weight, *others)
    if weight.name == "embedding/kernel":
        rows, columns, inputs, width = shape
        return FileArray(name, (width, inputs, rows, columns), parts, _transpose_convolution)
    if weight.name.endswith("/kernel"):
        inputs = shape[0] if PROJECTED.fullmatch(weight.name) else math.prod(shape[:-1])
        outputs = len(parts) * math.prod(shape) // inputs
        return FileArray(name, (outputs, inputs), parts, _split_projections)
    if weight.name.endswith("/bias"):
        return FileArray(name, (len(parts) * math.prod(shape),), parts, _split_projections)
    return FileArray(name, shape, parts)


def _split_projections(array, *weights):
    """Unpacks linear layers' (out, in) weights, or their biases."""
    parts = np.split(array, len(weights))
    return [
        np.reshape(np.ascontiguousarray(part.T), weight.shape)
        for part, weight in zip(parts, weights, strict=True)
    ]


def _transpose_convolution(array, weight):
    """Unpacks a convolution's (out, in, rows, columns) weight."""
    return [np.ascontiguousarray(array.transpose(2, 3, 1, 0))]
