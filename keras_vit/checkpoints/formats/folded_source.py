"""A file as a plain Vision Transformer would have been published."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.normalization import Normalization

# Returns an array from (its value, a function of name to any other array of the file).
Fold = Callable[[np.ndarray, Callable[[str], np.ndarray]], np.ndarray]


class FoldedSource(Source):
    """The arrays of another source, some of them folded into others when they are read.

    Args:
        source: the file.
        folds: {name: its `Fold`}.
        folded: the names that are in the others, and no longer by themselves.
    """

    def __init__(self, source: Source, folds: Mapping[str, Fold], folded: set[str]) -> None:
        self.path, self.grid, self.config = source.path, source.grid, source.config
        self.shapes = {name: s for name, s in source.shapes.items() if name not in folded}
        self._source, self._folds = source, folds

    def is_numeric(self, name: str) -> bool:
        return self._source.is_numeric(name)

    def read(self, name: str) -> np.ndarray:
        value = self._source.read(name)
        fold = self._folds.get(name)
        return fold(value, self._source.read) if fold else value


def fold_normalization(source: Source, module: str, normalization: Normalization) -> Source:
    """Returns a PyTorch-format file for images in [-1, 1].

    Args:
        source: the file.
        module: its name of the patch embedding.
        normalization: of the images that it was made for.
    """
    weight, bias = f"{module}.weight", f"{module}.bias"
    shape = source.shapes.get(weight, ())
    # Arrays that cannot be folded are left for the comparison with the model to refuse.
    if len(shape) != 4 or shape[1] != 3 or not source.is_numeric(weight):
        return source
    folds: dict[str, Fold] = {weight: lambda value, read: normalization.fold_kernel(value)}
    if source.shapes.get(bias) == shape[:1]:
        folds[bias] = lambda value, read: normalization.fold_bias(value, read(weight))
    return FoldedSource(source, folds, set())


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
