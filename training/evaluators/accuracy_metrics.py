"""Classification metrics, exact on every image: top-1, top-5, loss, confusion, and ReaL.

An image counts as correct when the class of its largest logit is among its labels, and for top-5
when one of the five largest is. With one label per image that is the usual accuracy; with several,
as in ReaL (Beyer et al., 2020), it is the ReaL accuracy, for which images that have no label are
left out of numerator and denominator.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.typing import Tensor
from training.recipes.losses import build_loss
from training.reporting.table import Table


def counted_sums(logits: Tensor, labels: Tensor, mask: Tensor, loss: keras.losses.Loss) -> Tensor:
    """Returns the sums of loss, top-1 hits and top-5 hits over the images that count.

    Args:
        logits: (batch, classes) float32.
        labels: (batch, classes) floats, positive at each label of the image.
        mask: (batch,) float32, 0 for images that only pad the batch.
        loss: of `training.recipes.losses`.

    Returns:
        (4,) float32: the three sums, and the number of images that have a label and are no
        padding.
    """
    is_label = ops.cast(labels > 0, "float32")
    counted = mask * ops.max(is_label, axis=-1)
    _, best = ops.top_k(logits, k=min(5, logits.shape[-1]))
    hits = ops.take_along_axis(is_label, best, axis=-1)
    return ops.stack(
        [
            ops.sum(counted * loss.call(labels, logits)),
            ops.sum(counted * hits[:, 0]),
            ops.sum(counted * ops.max(hits, axis=-1)),
            ops.sum(counted),
        ]
    )


def means(sums: Iterable[float]) -> dict[str, float | int]:
    """Returns `{"loss", "top1", "top5", "count"}` of the sums of `counted_sums` over a split.

    Raises:
        ValueError: if no image counts.
    """
    loss, top1, top5, count = map(float, sums)
    if not count:
        raise ValueError("Expected at least one image with a label. Received: none")
    return {
        "loss": loss / count,
        "top1": top1 / count,
        "top5": top5 / count,
        "count": int(count),
    }


class ClassificationMetrics:
    """Sums over batches on the host, with a confusion matrix; means are formed at the end.

    Args:
        loss: `"softmax"` or `"sigmoid"`, the loss that is averaged over the counted images.
    """

    def __init__(self, loss: str = "softmax"):
        self._loss = build_loss(loss)
        self._sums = np.zeros(4)
        self._confusion: np.ndarray | None = None

    def update(self, logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> None:
        """Adds a batch.

        Args:
            logits: (batch, classes) floats.
            labels: (batch, classes) floats, positive where the image has the label. An image
                without any is not counted.
            mask: (batch,) floats, 0 for rows that only pad the batch; None counts all.
        """
        logits, labels = np.asarray(logits, np.float32), np.asarray(labels, np.float32)
        if logits.ndim != 2 or logits.shape != labels.shape:
            raise ValueError(
                "Expected logits and labels of one shape (batch, classes): does the model have "
                f"the data set's number of classes? Received: {logits.shape} and {labels.shape}"
            )
        counted = labels.any(axis=1)
        if mask is not None:
            counted &= np.asarray(mask) > 0
        logits, labels = logits[counted], labels[counted]
        if not np.isfinite(logits).all():
            raise ValueError(
                "Expected finite logits. Received: infinite or undefined values from the model; "
                "has its training diverged, or are images out of its range?"
            )
        ones = np.ones(len(logits), np.float32)
        self._sums += ops.convert_to_numpy(counted_sums(logits, labels, ones, self._loss))
        if self._confusion is None:
            self._confusion = np.zeros((labels.shape[1],) * 2, np.int64)
        single = np.count_nonzero(labels, axis=1) == 1
        pairs = labels[single].argmax(axis=1), logits[single].argmax(axis=1)
        np.add.at(self._confusion, pairs, 1)

    def result(self) -> dict[str, Any]:
        """Returns `means`, and `confusion`: (classes, classes) integers, row the label and column
        the prediction, over the images with one label.
        """
        return {**means(self._sums), "confusion": self._confusion}


def per_class(confusion: np.ndarray, names: Sequence[str] | None = None) -> Table:
    """Returns for each class: images, recall (its accuracy), precision, most frequent confusion.

    Args:
        confusion: (classes, classes) counts, row the label and column the prediction.
        names: of the classes; numbers if None.
    """
    names = [str(i) for i in range(len(confusion))] if names is None else list(names)
    if len(names) != len(confusion):
        raise ValueError(
            f"Expected a name for each of {len(confusion)} classes. Received: {len(names)} names"
        )
    rows = []
    for label, name in enumerate(names):
        images, predictions = confusion[label].sum(), confusion[:, label].sum()
        correct = confusion[label, label]
        mistakes = confusion[label].copy()
        mistakes[label] = 0
        worst = mistakes.argmax() if mistakes.any() else None
        rows.append(
            (
                name,
                int(images),
                f"{100 * correct / images:.2f}" if images else "–",
                f"{100 * correct / predictions:.2f}" if predictions else "–",
                "" if worst is None else f"{names[worst]} ({mistakes[worst]})",
            )
        )
    return Table(("class", "images", "recall %", "precision %", "mostly mistaken for"), rows)
