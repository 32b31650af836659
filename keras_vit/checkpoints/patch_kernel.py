"""The patch embedding of a file, converted to the images that a model takes."""

import keras
import numpy as np

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.flexible import resize_kernel
from keras_vit.checkpoints.formats.file_layout import FileLayout
from keras_vit.checkpoints.formats.folded_source import Fold, FoldedSource
from keras_vit.checkpoints.normalization import Normalization
from keras_vit.checkpoints.variable_names import weights_of


def convert_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Returns a kernel of red, green and blue for images of another number of channels.

    One channel gets the sum, so that a gray image has the embeddings of the same in color. Of
    more, channel i gets the kernel of color i mod 3, times 3 / channels, as in timm.

    Args:
        kernel: (rows, columns, 3, width) float array.
        channels: int.

    Returns:
        (rows, columns, channels, width) float array.
    """
    if channels == 1:
        return kernel.sum(2, keepdims=True)
    return kernel[:, :, np.arange(channels) % 3] * (3 / channels)


def convert_patches(
    source: Source,
    layout: FileLayout,
    model: keras.Model,
    normalization: Normalization | None,
    flexible: bool,
) -> Source:
    """Returns a file whose patch embedding is for the images and patches of a model.

    What cannot be converted is left for the comparison with the model to refuse.

    Args:
        source: the file.
        layout: its layout.
        model: what it is loaded into.
        normalization: of the images that the file was made for; None if they are in [-1, 1].
        flexible: bool, whether a kernel of another patch size is resized.

    Raises:
        CheckpointError: for a normalization and a kernel that is not of color images.
    """
    weight, bias, axes = layout.patch_arrays()
    shape = source.shapes.get(weight, ())
    targets = [w.shape for w in weights_of(model) if w.name == "embedding/kernel"]
    if len(shape) != 4 or not targets or not source.is_numeric(weight):
        return source
    rows, columns, channels, width = (shape[axis] for axis in axes)
    if model.arguments["resnet"]:
        return source
    if channels != 3:
        if normalization is None:
            return source
        raise CheckpointError(
            f"{source.path} is not of color images: expected a kernel of 3 channels, whose "
            f"normalization is known. Received: {weight} of {channels}. Nothing was loaded."
        )
    size = targets[0][:2] if flexible else (rows, columns)
    target = (*size, targets[0][2], width)
    if target == (rows, columns, channels, width) and normalization is None:
        return source

    def resized(value):
        kernel = value.transpose(axes)
        return kernel if size == (rows, columns) else resize_kernel(kernel, *size)

    def fold_kernel(value, read):
        kernel = resized(value)
        if target[2] == 1 and normalization:
            kernel = convert_channels(normalization.fold_kernel(kernel), 1)
        else:
            kernel = kernel if target[2] == 3 else convert_channels(kernel, target[2])
            kernel = normalization.fold_kernel(kernel) if normalization else kernel
        return np.ascontiguousarray(kernel.transpose(np.argsort(axes)), np.float32)

    def fold_bias(value, read):
        kernel = resized(read(weight))
        if target[2] not in (1, 3):
            kernel = convert_channels(kernel, target[2])
        return normalization.fold_bias(value, kernel)

    folds: dict[str, Fold] = {weight: fold_kernel}
    if normalization and source.shapes.get(bias) == (width,):
        folds[bias] = fold_bias
    return FoldedSource(source, folds, set(), {weight: tuple(target[i] for i in np.argsort(axes))})
