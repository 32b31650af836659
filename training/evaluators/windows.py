"""Evaluation of images of any size by windows that slide over them, as Segmenter's numbers are.

Section 4.1 of Strudel et al. (2021): images are resized, their aspect kept; logits of overlapping
windows are averaged; the probabilities of all sizes, and of mirrored images, are averaged.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.interpolation import half_pixel_weights

from ..data import Split
from ..data.preprocessing.geometry import size_between
from ..errors import UsageError, first_line
from ..io.progress_bar import track
from ..tasks.base import Evaluation
from ..tasks.classification.evaluation import logits_in_order
from ..tasks.segmentation import Segmentation, class_counts, evaluation_of

logger = logging.getLogger("keras_vit")

# The long side is at most so many times the short one.
_LONGEST = 4


def evaluate_by_windows(
    model: Any,
    split: Split,
    short_side: int,
    stride: int = 0,
    scales: Sequence[float] = (1.0,),
    flip: bool = False,
) -> Evaluation:
    """Evaluates a model of masks on a split, each image at its own size.

    Args:
        model: an `ImageFunction` of square images, the windows.
        split: of images with maps of classes.
        short_side: of the images that windows slide over, in pixels.
        stride: pixels from window to window; 0 is 32 less than the window, the original's.
        scales: factors of `short_side`; the original's are 0.5, 0.75, 1, 1.25, 1.5 and 1.75.
        flip: whether mirrored images are averaged as well.

    Raises:
        UsageError: if the model gives no masks, or its images are not square.
    """
    height, width = model.interface.image_size or (0, 0)
    if model.interface.classifies != "pixel" or not 0 < height == width:
        raise UsageError(
            "Expected a model of masks of square images of one size, which slides over others. "
            f"Received: {model.name}."
        )
    low, high = model.interface.image_range
    prepare = split.preprocess(f"decode|value_range({low}, {high})")
    task, classes = Segmentation(), split.dataset.num_classes
    function, total = logits_in_order(model, split.dataset, "softmax"), np.zeros(3 + 3 * classes)
    for index in track(range(split.num_examples), f"evaluating {split.dataset.name} by windows"):
        try:
            read = split.read(tf.constant(index, tf.int64))
            example = task.encode(prepare.example(read, tf.constant([0, 0])), classes)
        except (tf.errors.OpError, ValueError) as error:
            if not split.photos:
                raise
            logger.warning("Left out: %s: %s", split.example_id(index), first_line(error))
            continue
        image, labels = example["image"].numpy(), example["label"].numpy()
        shorts = [int(scale * short_side) for scale in scales]
        sides = [tuple(size_between(image.shape, x, _LONGEST * x).numpy()) for x in shorts]
        found = window_probabilities(
            function, image, height, stride or max(height - 32, 1), sides, flip
        )
        known = labels >= 0
        if (labels >= classes).any():
            raise ValueError(
                f"Expected classes below {classes} in the mask of {split.example_id(index)}. "
                f"Received: {labels.max()}."
            )
        best, labels = found.argmax(-1)[known], labels[known]
        losses = -np.log(np.maximum(found[known, labels], np.finfo("float32").tiny))
        counts = class_counts(best, labels, classes)
        total += np.concatenate([[losses.sum(), len(labels), 1], *counts])
    return evaluation_of(total, split.dataset)


def window_starts(size: int, window: int, stride: int) -> list[int]:
    """Returns where windows start along a side: every `stride`, and one at the end."""
    return [*range(0, max(size - window, 0), stride), max(size - window, 0)]


def window_probabilities(
    function: Callable[[np.ndarray], np.ndarray],
    image: np.ndarray,
    window: int,
    stride: int,
    scales: Sequence[tuple[int, int]] = (),
    flip: bool = False,
) -> np.ndarray:
    """Returns the probabilities of every pixel's classes, by windows over an image of any size.

    As Segmenter evaluates (section 4.1): at each size, logits of overlapping windows are averaged
    and resized to the image; the probabilities of all sizes, and of mirrored images, are averaged.

    Args:
        function: of images (n, window, window, channels) to logits (n, window, window, classes).
        image: (height, width, channels) float32, in the range of `function`.
        window: side of the windows, in pixels. A smaller image is enlarged.
        stride: pixels from window to window, at most `window`.
        scales: (height, width) of the image at each scale; () is its own size alone.
        flip: whether each is mirrored as well.

    Returns:
        (height, width, classes) float32.

    Raises:
        ValueError: for a stride that is no number from 1 to `window`.
    """
    if not 0 < stride <= window:
        raise ValueError(f"Expected a stride from 1 to the window, {window}. Received: {stride}")
    size, found = image.shape[:2], []
    for shape in scales or [size]:
        scaled = _resized(image, shape)
        if min(shape) < window:
            # Enlarged again, as the original does, so that the small size blurs it.
            longer = int(max(shape) / min(shape) * window)
            sides = (window, longer) if shape[0] == min(shape) else (longer, window)
            scaled = _resized(scaled, sides)
        for mirrored in (False, True) if flip else (False,):
            images = scaled[:, ::-1] if mirrored else scaled
            logits = _resized(_window_logits(function, images, window, stride), size)
            exponents = np.exp(logits - logits.max(-1, keepdims=True))
            probabilities = exponents / exponents.sum(-1, keepdims=True)
            found.append(probabilities[:, ::-1] if mirrored else probabilities)
    return np.mean(found, axis=0)


def _window_logits(function, image, window, stride):
    sums, counts = None, np.zeros((*image.shape[:2], 1), np.float32)
    for top in window_starts(image.shape[0], window, stride):
        for left in window_starts(image.shape[1], window, stride):
            place = slice(top, top + window), slice(left, left + window)
            logits = np.asarray(function(image[place][None]))[0]
            sums = np.zeros((*image.shape[:2], logits.shape[-1])) if sums is None else sums
            sums[place] += logits
            counts[place] += 1
    return (sums / counts).astype(np.float32)


def _resized(image, size):
    """Returns an array (height, width, channels) bilinearly resized between pixel centers."""
    if image.shape[:2] == tuple(size):
        return image
    by_row, by_column = map(half_pixel_weights, image.shape[:2], size)
    return np.einsum("ir,jc,rck->ijk", by_row, by_column, image, optimize=True).astype("float32")
