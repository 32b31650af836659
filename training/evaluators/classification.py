"""Classification accuracy and loss of a model, exact on every image of a split.

An image counts as correct when the class of its largest logit is among its labels, and for top-5
when one of the five largest is. With one label per image that is the usual accuracy; with several,
as in ReaL (Beyer et al., 2020), it is the ReaL accuracy, for which images that have no label are
left out of numerator and denominator.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import keras
import numpy as np
from keras import ops

from keras_vit.losses import build_loss
from keras_vit.type_hints import Tensor

from ..data.run_data import RunData
from ..engine.engine_interface import Engine
from ..engine.update import BatchSums
from ..errors import UsageError
from ..io.printed_table import Table
from .features_and_logits import inference_function

logger = logging.getLogger("keras_vit")


def counted_sums(logits: Tensor, labels: Tensor, mask: Tensor, loss: keras.losses.Loss) -> Tensor:
    """Returns (4,) float32: sums of loss, top-1 hits and top-5 hits of the images that count.

    And their number: those that have a label and are no padding.

    Args:
        logits: (batch, classes) float32. A row with a NaN is no hit.
        labels: (batch, classes) floats, positive at each label of the image.
        mask: (batch,) float32, 0 for images that only pad the batch.
        loss: of `keras_vit.losses`.
    """
    is_label = ops.cast(labels > 0, "float32")
    counted = mask * ops.max(is_label, axis=-1)
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


def batch_sums(loss: keras.losses.Loss) -> BatchSums:
    """Returns the function from a model and a batch to its `counted_sums`."""

    def of_batch(model, batch):
        logits = ops.cast(model(batch["image"], training=False), "float32")
        return counted_sums(logits, batch["label"], batch["mask"], loss)

    return of_batch


def means(sums: Iterable[float]) -> dict[str, float | int]:
    """Returns `{"loss", "top1", "top5", "count"}` of the sums of `counted_sums` over a split.

    Raises ValueError if no image counts.
    """
    loss, top1, top5, count = map(float, sums)
    if not count:
        raise ValueError("Expected at least one image with a label. Received: none")
    return {"loss": loss / count, "top1": top1 / count, "top5": top5 / count, "count": int(count)}


def sign_of(metric: str) -> float:
    """Returns -1 for a metric of which less is better, `eval_loss`, and 1 for the others."""
    return -1.0 if metric == "eval_loss" else 1.0


class ClassificationEvaluator:
    """Evaluates while training, on the devices of an engine that is built; see `Evaluator`.

    Yields `eval_loss`, `eval_top1`, `eval_top5` and `eval_count` of `config.eval_split`, as those
    of `means`.
    """

    names: tuple[str, ...] = ("eval_loss", "eval_top1", "eval_top5", "eval_count")
    distributed = True

    def __init__(self, every_steps: int, engine: Engine, loss: keras.losses.Loss, data: RunData):
        self.every_steps = every_steps

        self._split_sums = engine.make_split_sums(
            batch_sums(loss), data.eval_batches, data.eval_preprocess.on_device
        )

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the metrics of the engine's `model`, equal in all processes."""
        for name, value in means(self._split_sums()).items():
            yield f"eval_{name}", value


def evaluate(
    model: Callable,
    dataset: Iterable[Mapping],
    *,
    loss: str = "softmax",
    classes: Sequence[int] | None = None,
) -> dict[str, int | float | np.ndarray]:
    """Returns the accuracy of a model of any kind on every image of a data set.

    Args:
        model: a `keras.Model`, or any callable from a batch of images to (batch, classes) logits:
            a loaded TF-Hub module, a `hub.KerasLayer`, a function.
        dataset: batches of `{"image", "label", "mask"}`; label (batch, classes), positive at each
            label of the image; mask (batch,), 0 for padding, may be absent. An image without any
            label is not counted.
        loss: `"softmax"` or `"sigmoid"`, the loss that is averaged over the counted images.
        classes: of `class_order`: the output of the model for each class of the labels.

    Returns:
        `count`, the number of images; `top1`, `top5` and the mean `loss`; `confusion`, (classes,
        classes) integers: row the label, column the prediction, over images with one label.

    Raises:
        ValueError: if no image counts, or logits are not finite or of another shape than labels.
    """
    predict, loss_of = inference_function(model), build_loss(loss)
    sums, confusion, unlabeled = np.zeros(4), np.zeros((0, 0), np.int64), 0
    for batch in dataset:
        logits = np.asarray(predict(batch["image"]), np.float32)
        labels = np.asarray(batch["label"], np.float32)
        if classes is not None:
            logits = logits[:, classes]
        if logits.ndim != 2 or logits.shape != labels.shape:
            raise ValueError(
                f"Expected a model of the data set's {labels.shape[-1]} classes. Received: logits "
                f"of shape {logits.shape}. Name a data set of the model's classes."
            )
        mask = batch.get("mask")
        read = np.ones(len(labels), bool) if mask is None else np.asarray(mask) > 0
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
        logger.warning("%d images have no label: no figure counts them.", unlabeled)
    return {**means(sums), "confusion": confusion}


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
    if len(names) != len(confusion):
        raise ValueError(
            f"Expected a name for each of {len(confusion)} classes. Received: {len(names)} names"
        )
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
