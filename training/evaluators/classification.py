"""Classification accuracy, exact on every image: top-1, top-5, per class, and ReaL.

An image counts as correct when the class of its largest logit is among its labels. With one
label per image that is the usual accuracy; with several, as in ReaL (Beyer et al., 2020), it is
the ReaL accuracy, for which images that have no label are left out of numerator and denominator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from training.reporting.table import Table


class ClassificationMetrics:
    """Counts over batches; accuracies are formed from the counts at the end.

    Args:
        loss: `"softmax"` or `"sigmoid"`, the loss that is averaged over the counted images.
    """

    def __init__(self, loss: str = "softmax"):
        from training.recipes.losses import build_loss

        self._loss = build_loss(loss)
        self._count = self._top1 = self._top5 = 0
        self._loss_sum = 0.0
        self._confusion = None

    def update(self, logits, labels, mask=None) -> None:
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
        rows = np.arange(len(logits))
        best = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        predicted = best[:, 0] if len(best) else best.reshape(-1)
        self._count += len(logits)
        self._top1 += int(np.count_nonzero(labels[rows, predicted]))
        self._top5 += int(np.count_nonzero(labels[rows[:, None], best].any(axis=1)))
        if len(logits):
            self._loss_sum += float(np.sum(self._loss.call(labels, logits), dtype=np.float64))
        classes = labels.shape[1]
        if self._confusion is None:
            self._confusion = np.zeros((classes, classes), np.int64)
        single = np.count_nonzero(labels, axis=1) == 1
        np.add.at(self._confusion, (labels[single].argmax(axis=1), predicted[single]), 1)

    def result(self) -> dict:
        """Returns what `evaluate` returns."""
        if not self._count:
            raise ValueError("Expected at least one image with a label. Received: none")
        return {
            "count": self._count,
            "top1": self._top1 / self._count,
            "top5": self._top5 / self._count,
            "loss": self._loss_sum / self._count,
            "confusion": self._confusion,
        }


def evaluate(
    model: Callable, dataset: Iterable[Mapping], *, loss: str = "softmax"
) -> dict[str, int | float | np.ndarray]:
    """Returns the accuracy of a model on every image of a data set.

    Args:
        model: a `keras.Model`, or any callable from a batch of images to (batch, classes) logits:
            a loaded TF-Hub module, a `hub.KerasLayer`, a function.
        dataset: batches of `{"image", "label", "mask"}`; label (batch, classes), positive at each
            label of the image; mask (batch,), 0 for padding, may be absent.
        loss: `"softmax"` or `"sigmoid"`.

    Returns:
        `count`, the number of images; `top1`, `top5` and the mean `loss`; `confusion`, (classes,
        classes) integers: row the label, column the prediction, over images with one label.
    """
    from training.io.model_source import inference_function

    predict = inference_function(model)
    metrics = ClassificationMetrics(loss)
    for batch in dataset:
        metrics.update(predict(batch["image"]), batch["label"], batch.get("mask"))
    return metrics.result()


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
