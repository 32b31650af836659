"""The normalization of images that a published model was trained with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_vit.checkpoints.array_files import Source, json_beside
from keras_vit.checkpoints.errors import CheckpointError

PREPROCESSOR = "preprocessor_config.json"


@dataclass(frozen=True)
class Normalization:
    """Images enter as (rgb - mean) / std, with rgb in [0, 1].

    Models here take x = 2 rgb - 1 instead. Patches do not overlap and are not padded, so the
    difference is exactly another patch kernel and bias: K (rgb - mean) / std + b is
    K / (2 std) x + b + K (1/2 - mean) / std.

    Attributes:
        mean: (r, g, b), in units of [0, 1].
        std: (r, g, b), positive, in units of [0, 1].
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def fold_kernel(self, kernel: np.ndarray) -> np.ndarray:
        """Returns the (rows, columns, channels, width) kernel for images in [-1, 1].

        Channels after the third repeat red, green and blue.
        """
        _, std = self._of_channels(kernel.shape[2])
        return kernel / (2 * std[:, None])

    def fold_bias(self, bias: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        """Returns the (width,) float32 bias, from it and the kernel before `fold_kernel`."""
        mean, std = self._of_channels(kernel.shape[2])
        sums = kernel.sum((0, 1), np.float64)
        return (bias + ((0.5 - mean) / std) @ sums).astype(np.float32)

    def _of_channels(self, channels):
        colors = np.arange(channels) % 3
        return np.array(self.mean)[colors], np.array(self.std)[colors]


def normalization_of(
    source: Source, mean: Sequence[float] | None, std: Sequence[float] | None
) -> Normalization:
    """Returns the normalization of a PyTorch-format file: the caller's, or what lies beside it.

    Args:
        source: the file.
        mean, std: (r, g, b) in units of [0, 1], or both None for those of timm's config.json or
            of Hugging Face's preprocessor_config.json in the folder of the file.

    Raises:
        CheckpointError: if they are not known, or are no three numbers.
    """
    if mean is not None or std is not None:
        return _checked(mean, std, "the arguments `mean` and `std`", source)
    config = source.config.get("pretrained_cfg", source.config)
    if isinstance(config, Mapping) and {"mean", "std"} & set(config):
        return _checked(config.get("mean"), config.get("std"), "config.json", source)
    preprocessor = json_beside(source.path, PREPROCESSOR)
    if preprocessor is None:
        processor = json_beside(source.path, "processor_config.json") or {}
        preprocessor = processor.get("image_processor")
    if isinstance(preprocessor, Mapping):
        return _of_preprocessor(preprocessor, source)
    raise CheckpointError(
        f"{source.path} does not tell how the images of its training were normalized, and models "
        "here take [-1, 1]. Put timm's config.json (with `pretrained_cfg`) or Hugging Face's "
        f"{PREPROCESSOR} beside the file, or pass load_checkpoint(..., mean=(r, g, b), "
        "std=(r, g, b)) in units of [0, 1]: ImageNet's are mean=(0.485, 0.456, 0.406), "
        "std=(0.229, 0.224, 0.225); files for [-1, 1] have 0.5 for all. Nothing was loaded."
    )


def _of_preprocessor(config, source):
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if config.get("do_normalize", True):
        mean, std = config.get("image_mean"), config.get("image_std")
    result = _checked(mean, std, PREPROCESSOR, source)
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    if not isinstance(factor, (int, float)) or not factor > 0:
        raise CheckpointError(
            f"Expected a positive `rescale_factor` in {PREPROCESSOR} beside {source.path}. "
            f"Received: {factor!r}. Nothing was loaded."
        )
    # Their rule holds for pixels of 0 to 255, times the factor; 1 / 255 in decimals is not exact.
    unit = round(255 * factor, 9)
    return Normalization(tuple(m / unit for m in result.mean), tuple(s / unit for s in result.std))


def _checked(mean, std, origin, source) -> Normalization:
    values: list[Any] = []
    for value in (mean, std):
        try:
            values.append(np.array(value, np.float64))
        except (TypeError, ValueError):
            values.append(np.array(np.nan))
    if any(v.shape != (3,) or not np.isfinite(v).all() for v in values) or (values[1] <= 0).any():
        raise CheckpointError(
            f"{source.path} cannot be loaded so. Expected in {origin} a mean and a "
            f"positive std of red, green and blue, in units of [0, 1]. Received: mean={mean!r}, "
            f"std={std!r}. Nothing was loaded."
        )
    return Normalization(*(tuple(value.tolist()) for value in values))
