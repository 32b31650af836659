"""Segmentation: a class for every pixel, on images with maps of classes.

Maps are int32 (height, width), `NO_CLASS` where no class is known. Evaluations sum intersections
and unions over a whole split, so that every image counts by its pixels: the mean over images of
their intersection over union is another number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from ..errors import UsageError
from ..io.printed_table import Table
from .base import (
    COUNTED,
    Batches,
    Evaluation,
    Metric,
    Section,
    Task,
    as_bytes,
    require_names,
    worst_section,
)

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from ..engine.update import BatchSums

# Value of no class in stored maps, as ADE20K, Cityscapes and Pascal have it.
IGNORED = 255
# On the page of a run.
_WORST, _SIDE = 12, 256
# Pixels of a batch that float32 counts exactly.
_COUNTABLE = 2**24


class Segmentation(Task):
    """The model gives a logit for each class and pixel; labels are maps of classes."""

    chosen_by = "masks.decoder"
    classifies = "pixel"
    keys = (
        (
            chosen_by,
            "",
            "mask or linear: a class for every pixel, by that decoder of Segmenter; empty "
            "classifies images",
            {"choices": ("", "mask", "linear")},
        ),
        ("masks.dice", 0.0, "weight of the dice loss of classes beside the cross-entropy", {}),
    )
    unused = (
        (
            "loss label_smoothing class_weights calibration.temperature calibration.accuracy "
            "lora.rank freeze.head_only",
            "no loss, label_smoothing, class_weights, calibration, lora.rank or freeze.head_only "
            "beside masks.decoder: its loss is the cross-entropy of pixels",
        ),
        ("distill.teacher", "'': masks are learned from labels alone"),
        ("few_shot.datasets", "no few-shot evaluation beside masks.decoder"),
    )
    # "mask", uint8 or int32 (height, width), stands beside them in an answer.
    answer_columns: Mapping[str, str] = {"classes": "int32", "names": "string", "areas": "float"}
    shown = ("areas", "class", "area")
    no_mixup = "config.masks.decoder: expected no mixup, as a pixel has one class"
    metrics = (
        Metric("miou", "mean IoU", panel="mean IoU"),
        Metric("pixels", "pixel accuracy", panel="pixel accuracy"),
    )

    def encoder_arguments(self, num_classes: int) -> dict[str, Any]:
        return {"num_classes": None}

    def model_to_train(
        self, model: keras.Model, config: ConfigDict, num_classes: int
    ) -> keras.Model:
        from keras_vit.models.segmenter import Segmenter

        return Segmenter(model, num_classes, config.masks.decoder)

    def require_output(self, model: keras.Model, num_classes: int, dataset: str) -> None:
        if model.output_shape[1:] != (*model.input_shape[1:3], num_classes):
            raise UsageError(
                f"Expected a model with a logit for each pixel and each of the {num_classes} "
                f"classes of {dataset}. Received: an output of {model.output_shape}."
            )

    def encode(self, example: dict[str, tf.Tensor], num_classes: int) -> dict[str, tf.Tensor]:
        """Encodes a map as int32 (height, width)."""
        import tensorflow as tf

        found = example["label"]
        if found.shape.rank != 3 or not found.dtype.is_integer:
            raise UsageError(
                "config.masks.decoder: expected a data set of images with maps of classes, such as "
                f"digits_masks or masks:FOLDER. Received: labels of shape {tuple(found.shape)}."
            )
        found = tf.cast(found[..., 0], tf.int32)
        # A data set of more classes has no number for no class but a negative one.
        ignored = num_classes <= IGNORED and found == IGNORED
        return {"image": example["image"], "label": tf.where(ignored, -1, found)}

    def losses(self, config: ConfigDict, split: Any) -> Callable[[keras.Model, Any], Any]:
        from keras import ops

        def losses(model, batch):
            logits = model(batch["image"], training=True)
            by_pixel, known = _cross_entropy(logits, batch["label"])
            counts = ops.sum(known, axis=(1, 2))
            # The mean over images is the mean over all pixels of the batch that have a class.
            found = ops.sum(by_pixel, axis=(1, 2)) / ops.maximum(ops.mean(counts), 1.0)
            if config.masks.dice:
                found = found + config.masks.dice * dice_losses(logits, batch["label"])
            return found

        return losses

    def batch_sums(self, loss: str) -> BatchSums:
        from keras import ops

        def sums(model, batch):
            logits = model(batch["image"], training=False)
            images, height, width, classes = logits.shape
            if (images or 1) * height * width > _COUNTABLE:
                raise ValueError(
                    f"Expected at most {_COUNTABLE} pixels in a batch, which are counted exactly. "
                    f"Received: {images} x {height} x {width}. Lower config.eval_batch_size."
                )
            counted = ops.cast(batch[COUNTED], "int32")[:, None, None]
            labels = ops.where(counted > 0, batch["label"], -1)
            by_pixel, known = _cross_entropy(logits, labels)
            best = ops.where(labels >= 0, ops.cast(ops.argmax(logits, axis=-1), "int32"), -1)
            hit = ops.where(best == labels, labels, -1)
            # `one_hot` of -1 is a row of zeros.
            by_class = [
                ops.sum(ops.one_hot(ops.reshape(each, (-1,)), classes, dtype="float32"), axis=0)
                for each in (hit, best, labels)
            ]
            totals = ops.stack([ops.sum(by_pixel), ops.sum(known), ops.sum(batch[COUNTED])])
            return ops.concatenate([totals, *by_class])

        return sums

    def means(self, sums: Iterable[float]) -> dict[str, float]:
        (loss, pixels, count), by_class = np.split(np.asarray([*sums], np.float64), [3])
        if not pixels:
            raise ValueError("Expected at least one pixel with a class. Received: none")
        hits, predicted, labels = np.split(by_class, 3)
        found = {
            "miou": float(np.nanmean(intersection_over_union(hits, predicted, labels))),
            "pixels": float(hits.sum() / pixels),
        }
        return {"loss": float(loss / pixels), **found, "count": int(count)}

    def evaluate(self, model: Any, batches: Batches, dataset: Any, loss: str) -> Evaluation:
        from .classification.evaluation import logits_in_order

        outputs = logits_in_order(model, dataset, "softmax")
        return evaluation_of(self.split_sums(outputs, batches, loss), dataset)

    def answers(
        self, model: Any, outputs: np.ndarray, names: Sequence[str] | None, top: int
    ) -> list[dict[str, Any]]:
        classes, found = outputs.shape[-1], []
        require_names(names, classes)
        if not np.isfinite(outputs).all():
            raise ValueError(
                "Expected finite logits. Received: infinite or undefined values from the model; "
                "has its training diverged?"
            )
        for mask in np.argmax(outputs, axis=-1).astype(np.int32):
            counts = np.bincount(mask.ravel(), minlength=classes)
            order = [int(each) for each in np.argsort(-counts, kind="stable")[:top] if counts[each]]
            found.append(
                {
                    "classes": order,
                    "names": [names[each] if names else str(each) for each in order],
                    "areas": (counts[order] / mask.size).tolist(),
                    "mask": mask,
                }
            )
        return found

    def picture(self, image: np.ndarray, answer: Mapping[str, Any]) -> np.ndarray:
        """Returns the image half covered by the colors of its classes."""
        colors = np.array(palette(), np.uint16)[answer["mask"] % 256]
        return ((image.astype(np.uint16) + colors) // 2).astype(np.uint8)

    def page_arrays(self, source: Any, batches: Batches, dataset: Any) -> dict[str, np.ndarray]:
        """Returns sums over the pixels, and the images of which most pixels are wrong.

        Each as it is, under its mask and under the answer, side by side.
        """
        classes, worst = dataset.num_classes, []
        total = np.zeros(3 + 3 * classes)
        for batch in batches:
            keys = ("image", "label", COUNTED)
            images, labels, counted = (np.asarray(batch[key]) for key in keys)
            answers = source.model.predict_on_batch(images).argmax(-1)
            labels = np.where(counted[:, None, None] > 0, labels, -1)
            for image, answer, label in zip(images, answers, labels, strict=True):
                by_class = class_counts(answer, label, classes)
                right, _, known = by_class.sum(axis=1)
                if known:
                    total += np.concatenate([[0, known, 1], *by_class])
                    worst.append((float((known - right) / known), image, label, answer))
            worst = sorted(worst, key=lambda each: -each[0])[:_WORST]
        shown = []
        for _, image, label, answer in worst:
            photo = as_bytes(np.broadcast_to(image, (*label.shape, 3)))
            masks = [self.picture(photo, {"mask": mask}) for mask in (label, answer)]
            step = -(-len(photo) // _SIDE)
            shown.append(np.concatenate([photo, *masks], axis=1)[::step, ::step])
        return {
            "total": total,
            "images": np.array(shown, np.uint8),
            "wrong": np.array([share for share, *_ in worst]),
        }

    def page_content(
        self, arrays: Mapping[str, np.ndarray], class_names: Sequence[str] | None
    ) -> tuple[int, list[Section]]:
        total, count = arrays["total"], int(arrays["total"][2])
        if not count:
            return 0, []
        captions = [f"{100 * share:.1f} % of the pixels are wrong" for share in arrays["wrong"]]
        note = "IoU: intersection over union of the pixels of all images."
        classes = Section("classes", "Classes", note, table_of(total, class_names))
        return count, [classes, worst_section(arrays["images"], captions, count)]


@functools.cache
def palette() -> list[tuple[int, ...]]:
    """Returns a color for each of 256 classes, as the Pascal VOC challenge has them.

    The bits of a class's number go to red, green and blue in turns, the lowest to the highest bit.
    """
    return [
        tuple(
            sum((number >> 3 * place + channel & 1) << 7 - place for place in range(3))
            for channel in range(3)
        )
        for number in range(256)
    ]


def write_mask(path: Any, mask: np.ndarray, photo: str) -> None:
    """Writes a mask as a PNG with `palette`, enlarged to a photo by its nearest pixels.

    Values are the numbers of classes, as `masks:FOLDER` reads them. Raises ValueError for a class
    above 255, which a PNG of a palette has no place for.
    """
    from PIL import Image

    from keras_vit.photos.prepare_photos import upright_size

    from ..io.atomic import atomic_file

    if mask.max(initial=0) > 255:
        raise ValueError(f"Expected classes up to 255 in a PNG. Received: {mask.max()}.")
    height, width = upright_size(photo)
    picture = Image.fromarray(mask.astype(np.uint8))
    picture = picture.resize((width, height), Image.Resampling.NEAREST)
    picture.putpalette([part for color in palette() for part in color])
    with atomic_file(path) as temporary:
        picture.save(temporary, "PNG")


def _cross_entropy(logits, labels):
    """Returns the cross-entropy of pixels, 0 without a class, and whether each has one; float32.

    Both are (batch, height, width).
    """
    from keras import ops

    known = ops.cast(labels >= 0, "float32")
    losses = ops.sparse_categorical_crossentropy(
        ops.maximum(labels, 0), ops.cast(logits, "float32"), from_logits=True
    )
    return losses * known, known


def dice_losses(logits: Any, labels: Any) -> Any:
    """Returns the dice loss of each image, (batch,) float32 in [0, 1] (Milletari et al., 2016).

    One minus the mean, over the classes that the image has, of twice the probabilities of a class
    on its pixels, divided by those on all pixels plus the number of its pixels. 0 of an image
    without any class.

    Args:
        logits: (batch, height, width, classes).
        labels: integers (batch, height, width), negative where no class is known.
    """
    from keras import ops

    # `one_hot` of -1 is a row of zeros.
    of_class = ops.one_hot(labels, logits.shape[-1], dtype="float32")
    known = ops.cast(labels >= 0, "float32")[..., None]
    probabilities = ops.softmax(ops.cast(logits, "float32")) * known
    shared, predicted, true = (
        ops.sum(each, axis=(1, 2)) for each in (probabilities * of_class, probabilities, of_class)
    )
    occurs = ops.cast(true > 0, "float32")
    missed = occurs * (1.0 - 2.0 * shared / ops.maximum(predicted + true, 1e-6))
    return ops.sum(missed, axis=-1) / ops.maximum(ops.sum(occurs, axis=-1), 1.0)


def evaluation_of(total: np.ndarray, dataset: Any) -> Evaluation:
    """Returns metrics, and a table of the classes, of the sums of `batch_sums` over a split."""
    of_classes = {"per_class": table_of(total, dataset.class_names)}
    return Evaluation(Segmentation().means(total), of_classes)


def table_of(total: np.ndarray, class_names: Sequence[str] | None) -> Table:
    """Returns the share of the pixels and the IoU of each class, of such sums."""
    hits, predicted, labels = np.split(np.asarray(total[3:]), 3)
    names = class_names or [str(number) for number in range(len(hits))]
    of_class = intersection_over_union(hits, predicted, labels)
    rows = [
        (
            name,
            f"{100 * labels[number] / labels.sum():.2f}",
            "–" if np.isnan(of_class[number]) else f"{100 * of_class[number]:.2f}",
        )
        for number, name in enumerate(names)
    ]
    return Table(("class", "pixels %", "IoU %"), rows)


def intersection_over_union(
    hits: np.ndarray, predicted: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Returns the intersection over union of each class, NaN of one that is nowhere.

    Args:
        hits: pixels of each class that are predicted as it, (classes,).
        predicted: pixels that are predicted as it and have any class.
        labels: pixels that have it.
    """
    union = predicted + labels - hits
    return np.divide(hits, union, out=np.full(len(union), np.nan), where=union > 0)


def mean_iou(predicted: np.ndarray, labels: np.ndarray, num_classes: int) -> float:
    """Returns the mean intersection over union of classes, both (…) integers; negative: no class.

    It is over all images together, and the classes that occur in either.
    """
    counts = class_counts(predicted, labels, num_classes)
    return float(np.nanmean(intersection_over_union(*counts)))


def class_counts(predicted: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns the pixels of each class that are hit, predicted and labeled, int64 (3, classes).

    Arguments are as of `mean_iou`; pixels without a class are in none of them.
    """
    known = labels >= 0
    counted = (labels[known & (predicted == labels)], predicted[known], labels[known])
    return np.stack([np.bincount(each, minlength=num_classes) for each in counted])
