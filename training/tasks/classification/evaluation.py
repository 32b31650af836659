"""Classification accuracy and loss of a model of any kind, exact on every image of a split."""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.losses import build_loss
from keras_vit.type_hints import Tensor

from ...errors import UsageError
from ...io.printed_table import Table
from ..base import COUNTED, Batches, Section, require_names

logger = logging.getLogger("keras_vit")

# A matrix of more classes is not read but searched: then a page has the most frequent confusions.
MATRIX_CLASSES = 40
WORST_CLASSES = 50
CONFUSIONS = 20


def counted_sums(
    logits: Tensor, labels: Tensor, counted: Tensor, loss: keras.losses.Loss
) -> Tensor:
    """Returns (4,) float32: sums of loss, top-1 hits and top-5 hits of the images that count.

    And their number: those that have a label and are no padding.

    Args:
        logits: (batch, classes) float32. A row with a NaN is no hit.
        labels: (batch, classes) floats, positive at each label of the image.
        counted: (batch,) float32, `COUNTED` of the batch.
        loss: of `keras_vit.losses`.
    """
    is_label = ops.cast(labels > 0, "float32")
    counted = counted * ops.max(is_label, axis=-1)
    _, best = ops.top_k(logits, k=min(5, logits.shape[-1]))
    known = ops.logical_not(ops.any(ops.isnan(logits), axis=-1, keepdims=True))
    hits = ops.where(known, ops.take_along_axis(is_label, best, axis=-1), 0.0)
    losses = ops.where(counted > 0, loss.call(labels, logits), 0.0)
    return ops.stack(
        [
            ops.sum(losses),
            ops.sum(counted * hits[:, 0]),
            ops.sum(counted * ops.max(hits, axis=-1)),
            ops.sum(counted),
        ]
    )


def means(sums: Iterable[float]) -> dict[str, float]:
    """Returns `Task.means` of the sums that `counted_sums` gives for a split."""
    loss, top1, top5, count = map(float, sums)
    if not count:
        raise ValueError("Expected at least one image with a label. Received: none")
    found = {"loss": loss, "top1": top1, "top5": top5}
    return {name: each / count for name, each in found.items()} | {"count": int(count)}


def measure(function: Callable, batches: Batches, loss: str) -> dict[str, Any]:
    """Returns what `training.evaluate` says of a function of images to logits."""
    loss_of = build_loss(loss)
    sums, confusion, unlabeled = np.zeros(4), np.zeros((0, 0), np.int64), 0
    for batch in batches:
        logits = np.asarray(function(batch["image"]), np.float32)
        labels = np.asarray(batch["label"], np.float32)
        if logits.ndim != 2 or logits.shape != labels.shape:
            raise ValueError(
                f"Expected a model of the data set's {labels.shape[-1]} classes. Received: logits "
                f"of shape {logits.shape}. Name a data set of the model's classes."
            )
        read = np.asarray(batch.get(COUNTED, np.ones(len(labels)))) > 0
        counted = read & labels.any(axis=1)
        unlabeled += np.count_nonzero(read & ~counted)
        if not counted.any():
            continue
        logits, labels = logits[counted], labels[counted]
        if not np.isfinite(logits).all():
            raise ValueError(
                "Expected finite logits. Received: infinite or undefined values from the model; "
                "has its training diverged, or are images out of its range?"
            )
        ones = np.ones(len(logits), np.float32)
        sums += ops.convert_to_numpy(counted_sums(logits, labels, ones, loss_of))
        if not confusion.size:
            confusion = np.zeros((labels.shape[1],) * 2, np.int64)
        single = np.count_nonzero(labels, axis=1) == 1
        pairs = labels[single].argmax(axis=1), logits[single].argmax(axis=1)
        np.add.at(confusion, pairs, 1)
    if unlabeled:
        said = "1 image has" if unlabeled == 1 else f"{unlabeled:,} images have"
        logger.warning("%s no label: no figure counts them.", said)
    return {**means(sums), "confusion": confusion}


def logits_in_order(model: Any, dataset: Any, loss: str) -> Callable:
    """Returns a function from images to logits in a data set's classes, of an `ImageFunction`.

    `loss` is as `logits_of` takes it. Raises `UsageError` for other classes than the data set's.
    """
    order = class_order(model.interface.class_names, dataset.class_names, dataset.name)
    of_model = logits_of(model, loss) if model.interface.output == "probabilities" else model
    return (lambda images: of_model(images)[..., order]) if order else of_model


def logits_of(probabilities: Callable, loss: str) -> Callable:
    """Returns a function from images to logits whose loss is that of the probabilities.

    It warns of probabilities that are rounded to 0 or 1: their logits are lost. `probabilities`
    maps images to (batch, classes), in [0, 1]; `loss` is `"softmax"` or `"sigmoid"`.
    """
    # The smallest number, and the largest that rounds to 0 beside 1.
    of_0, of_1 = np.finfo("float32").tiny, np.float32(2**-25)
    warn = functools.cache(logger.warning)

    def logits(images: Tensor) -> np.ndarray:
        found = np.asarray(probabilities(images), "float32")
        require_probabilities(found)
        if (found <= 0).any() or (loss == "sigmoid" and (found >= 1).any()):
            warn(
                "Some probabilities are rounded to 0 or 1: the loss is at least what is shown, and "
                "of equal ones the first counts as the best. Export logits to be exact."
            )
        positive = np.log(np.maximum(found, of_0))
        return positive if loss == "softmax" else positive - np.log(np.maximum(1 - found, of_1))

    return logits


def require_probabilities(values: np.ndarray) -> None:
    """Raises ValueError for what a file says to be probabilities and is not."""
    if np.any((values < -0.01) | (values > 1.01)):
        raise ValueError(
            "Expected probabilities, as the file's interface.json says. Received: values in "
            f"[{values.min():g}, {values.max():g}]. Export it again."
        )


def per_class(confusion: np.ndarray, names: Sequence[str] | None = None) -> Table:
    """Returns for each class: images, recall (its accuracy), precision, most frequent confusion.

    `confusion` are (classes, classes) counts, row the label and column the prediction; classes
    without names are shown by their numbers.
    """
    names = [str(i) for i in range(len(confusion))] if names is None else list(names)
    require_names(names, len(confusion))
    rows = []
    for label, name in enumerate(names):
        images, predictions = confusion[label].sum(), confusion[:, label].sum()
        correct, mistakes = confusion[label, label], confusion[label].copy()
        mistakes[label] = 0
        worst = mistakes.argmax()
        recall = f"{100 * correct / images:.2f}" if images else "–"
        precision = f"{100 * correct / predictions:.2f}" if predictions else "–"
        mistaken_for = f"{names[worst]} ({mistakes[worst]})" if mistakes.any() else ""
        rows.append((name, int(images), recall, precision, mistaken_for))
    return Table(("class", "images", "recall %", "precision %", "mostly mistaken for"), rows)


def confusion_table(confusion: np.ndarray, names: Sequence[str]) -> Table:
    """Returns `confusion` with the names of its classes."""
    rows = [(name, *counts) for name, counts in zip(names, confusion, strict=True)]
    return Table(("label", *names), rows)


def class_sections(confusion: np.ndarray, names: Sequence[str]) -> list[Section]:
    """Returns recall and precision of each class, and the confusions; arguments as `per_class`."""
    table, counts = per_class(confusion, names), confusion.sum(axis=1)
    recall = np.diag(confusion) / np.maximum(counts, 1)
    seen = np.flatnonzero(counts)
    worst = seen[np.argsort(recall[seen], kind="stable")][:WORST_CLASSES]
    note = f"Worst recall first: {len(worst)} of {len(seen):,} classes with images."
    shown = Table(table.columns, [table.rows[i] for i in worst])
    classes = Section("classes", "Classes", note, shown)
    if len(confusion) <= MATRIX_CLASSES:
        note, shown = "Row: the label. Column: the prediction.", confusion_table(confusion, names)
        return [classes, Section("confusion", "Confusion matrix", note, shown, is_matrix=True)]
    mistakes = confusion * (1 - np.eye(len(confusion), dtype=confusion.dtype))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:CONFUSIONS]
    pairs = zip(*np.unravel_index(order, mistakes.shape), strict=True)
    rows = [(names[one], mistakes[one, other], names[other]) for one, other in pairs]
    shown = Table(("label", "images", "taken for"), [row for row in rows if row[1]])
    return [classes, Section("confusion", "Most frequent confusions", table=shown)]


def class_order(
    of_model: Sequence[str] | None, of_data: Sequence[str] | None, name: str
) -> list[int] | None:
    """Returns which output of a model stands for each class of data; None for all in their order.

    The names of classes are None where they are not known. Raises `UsageError`, naming the data,
    if the classes are not the same.
    """
    if not of_model or not of_data or list(of_model) == list(of_data):
        return None
    if len(set(of_model)) < len(of_model):
        raise UsageError(
            f"Expected {name} to have the model's classes in their order, as some of them share a "
            "name. It has them in another order."
        )
    if sorted(of_model) != sorted(of_data):
        lacking, others = set(of_model) - set(of_data), set(of_data) - set(of_model)
        differing = [
            f"{what} {', '.join(sorted(names)[:5])}"
            for what, names in (("lacks", lacking), ("has also", others))
            if names
        ]
        raise UsageError(
            f"Expected {name} to have the model's {len(of_model)} classes. It "
            f"{' and '.join(differing)}. Rename its classes, or take a model and data of the same."
        )
    outputs = {each: output for output, each in enumerate(of_model)}
    return [outputs[each] for each in of_data]
