"""Layouts: the names and the packing of a model's weights in a published format, both ways."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from keras_vit.checkpoints.weights_of_model import Weight
from keras_vit.layers.position_embeddings import PositionEmbedding

# Rows and columns of a grid of patches, and the arrays' shapes by name.
Grid = tuple[int, int]
Shapes = Mapping[str, tuple[int, ...]]


class Packing(NamedTuple):
    """The arrangement of weights in an array of a file.

    Attributes:
        pack: from the weights' values and the array's shape to the array.
        unpack: from the array and the number of weights to their values, of any shape.
    """

    pack: Callable[[list[np.ndarray], tuple[int, ...]], np.ndarray]
    unpack: Callable[[np.ndarray, int], Sequence[np.ndarray]]


PLAIN = Packing(lambda values, _: values[0], lambda array, _: [array])
# Blocks along the first axis, as `jax.lax.scan` leaves them.
STACKED = Packing(lambda values, _: np.stack(values), lambda array, _: [*array])
# PyTorch's (out, in) kernels or (out,) biases of linear layers, several one after the other.
LINEAR = Packing(
    lambda values, shape: np.concatenate([v.reshape(*shape[1:], -1).T for v in values]),
    lambda array, count: [part.T for part in np.split(array, count)],
)
# PyTorch's (out, in, rows, columns).
CONVOLUTION = Packing(
    lambda values, _: values[0].transpose(3, 2, 0, 1),
    lambda array, _: [array.transpose(2, 3, 1, 0)],
)


@dataclass(frozen=True)
class FileArray:
    """One array of a checkpoint file and the weights that it holds, in order.

    Attributes:
        name: in the file.
        shape: in the file.
        weights: at least one.
        packing: their arrangement.
        scale: name of the array of LayerScale, y = gamma * f(x), whose f ends with these weights;
            "" if the format has none.
    """

    name: str
    shape: tuple[int, ...]
    weights: tuple[Weight, ...]
    packing: Packing = PLAIN
    scale: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The array's name in the file and the published ones of its weights."""
        return (self.name, *(weight.name for weight in self.weights))

    @property
    def positions(self) -> PositionEmbedding | int | None:
        """The way to resize the array as position embeddings, or None."""
        return None if self.packing is STACKED else self.weights[0].positions

    def unpack(self, array: np.ndarray) -> list[np.ndarray]:
        """Returns the weights' values, of their published shapes, from an array of `shape`."""
        parts = self.packing.unpack(array, len(self.weights))
        return [np.reshape(part, w.shape) for part, w in zip(parts, self.weights, strict=True)]

    def pack(self) -> np.ndarray:
        """Returns the array of the weights' values: float32 of `shape`."""
        values = [weight.value() for weight in self.weights]
        return np.ascontiguousarray(np.reshape(self.packing.pack(values, self.shape), self.shape))


class FileLayout:
    """The names and the arrangement of a model's arrays in a published format."""

    title: str  # in messages
    prefix: str = ""  # before every name that belongs to the model
    # Whether the table of positions has an entry for the class token; None if some have.
    class_entry: bool | None = None
    layer_scale: bool = False  # whether LayerScale is written, all ones
    interpolation: str = "corners"  # how positions are resized, see `resize_grid`
    # Arguments of the format's models that the arrays do not show.
    arguments: Mapping[str, Any] = MappingProxyType({})
    # Projections of attention whose biases a file may lack, in all blocks: they are zero.
    optional_biases: tuple[str, ...] = ()
    license: str = ""  # of the publisher's weights, if it does not allow every use

    def detect(self, shapes: Shapes, grid: Grid | None = None) -> "FileLayout | None":
        """Returns the layout of a file of these arrays, or None if it is of another format.

        `grid` is the (rows, columns) of its position embeddings, if it is stated.
        """
        raise NotImplementedError

    def converted(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the arrays of a file by name, those of other models replaced by equal ones."""
        return arrays

    def file_arrays(self, weights: Sequence[Weight]) -> list[FileArray]:
        """Returns the arrays that a file of this layout holds for a model's weights.

        Raises CheckpointError if the format has no place for one of them.
        """
        raise NotImplementedError

    def packed(self, weights: Sequence[Weight]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the name and the value of every array of a file, sorted by name."""
        arrays: dict[str, Callable[[], np.ndarray]] = {}
        for array in self.file_arrays(weights):
            arrays[array.name] = array.pack
            if self.layer_scale and array.scale:
                arrays[array.scale] = functools.partial(np.ones, array.shape[:1], np.float32)
        for name in sorted(arrays):
            yield name, arrays[name]()

    def arguments_of(self, normalization: np.ndarray) -> Mapping[str, Any]:
        """Returns arguments of a model by the (2, 3) mean and std of its images, in [0, 1]."""
        return {}

    def require_table(self, entries: int, shapes: Shapes, grid: Grid | None) -> None:
        """Raises CheckpointError if a table of positions has entries that no model here has."""

    def owns(self, name: str) -> bool:
        """Tells whether an array of the file belongs to the model."""
        return name.startswith(self.prefix)

    def spellings(self, part: str) -> tuple[str, ...]:
        """Returns the names that `part`, an array or module in `skip`, can have in a file."""
        return part, self.prefix + part

    def is_in(self, part: str, *names: str) -> bool:
        """Tells whether any array, by its name in the file or its published one, is in `part`."""
        spelled = self.spellings(part)
        inside = (f"{part}/", *(f"{name}{mark}" for name in spelled for mark in "/."))
        return any(name in (part, *spelled) or name.startswith(inside) for name in names)
