"""A file as a plain Vision Transformer would have been published."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from keras_vit.checkpoints.array_files import Source

# Returns an array from (its value, a function of name to any other array of the file).
Fold = Callable[[np.ndarray, Callable[[str], np.ndarray]], np.ndarray]


class FoldedSource(Source):
    """The arrays of another source, some of them folded into others when they are read.

    Args:
        source: the file.
        folds: {name: its `Fold`}.
        folded: the names that are in the others, and no longer by themselves.
        shapes: {name: shape} of those that have another shape than in the file.
    """

    def __init__(
        self,
        source: Source,
        folds: Mapping[str, Fold],
        folded: set[str],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.path, self.grid, self.config = source.path, source.grid, source.config
        every = {**source.shapes, **(shapes or {})}
        self.shapes = {name: shape for name, shape in every.items() if name not in folded}
        self._source, self._folds = source, folds

    def is_numeric(self, name: str) -> bool:
        return self._source.is_numeric(name)

    def read(self, name: str) -> np.ndarray:
        value = self._source.read(name)
        fold = self._folds.get(name)
        return fold(value, self._source.read) if fold else value


def fold_layer_scale(source: Source, scaled: Mapping[str, str]) -> Source:
    """Returns a file with its LayerScale, y = gamma * f(x), inside of the last projection of f.

    Args:
        source: the file.
        scaled: {name of an array of gammas: the projection that it scales}.
    """
    folds: dict[str, Fold] = {}
    folded = set()
    for gamma, module in scaled.items():
        width = source.shapes[gamma]
        arrays = (f"{module}.weight", f"{module}.bias")
        fits = [source.shapes.get(name, ())[:1] == width for name in arrays]
        if len(width) == 1 and all(fits) and source.is_numeric(gamma):
            folds.update(dict.fromkeys(arrays, partial(_scale_outputs, gamma)))
            folded.add(gamma)
    return FoldedSource(source, folds, folded)


def _scale_outputs(gamma, value, read):
    return (value.T * read(gamma)).T
