"""The range of pixels, which is the most common mistake with an exported model."""

import numpy as np

from export.errors import ExportError
from keras_vit.typing import Tensor

# A value as large as this is of pixels in [0, 255], not of rounding or augmentation in [0, 1].
BYTES_FROM = 2.0


def check_range(images: Tensor) -> None:
    """Checks that pixels are numbers in [0, 1].

    Raises:
        ExportError: otherwise; it names the range that they seem to be in.
    """
    low, high = float(np.min(images)), float(np.max(images))
    if low >= 0 and high <= 1:
        return
    hint = ""
    if high >= BYTES_FROM:
        hint = " They look like [0, 255]: divide by 255."
    elif low < 0:
        hint = " They look like [-1, 1]: take (images + 1) / 2."
    raise ExportError(f"Expected images in [0, 1]. Received: values in [{low:g}, {high:g}].{hint}")
