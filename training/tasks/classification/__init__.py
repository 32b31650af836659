"""Classification: one of the classes, or several, for each image.

An image counts as correct when the class of its largest logit is among its labels, and for top-5
when one of the five largest is. With one label per image that is the usual accuracy; with several,
as in ReaL (Beyer et al., 2020), it is the ReaL accuracy, for which images that have no label are
left out of numerator and denominator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from ...errors import UsageError
from ..base import (
    COUNTED,
    Batches,
    Chart,
    Evaluation,
    Metric,
    Picture,
    Section,
    Task,
    as_bytes,
    require_names,
)

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from ...engine.update import BatchSums

logger = logging.getLogger("keras_vit")

# Fewer held-out images choose a temperature or threshold by chance: the 95 % interval of a share of
# 95 % is 89 to 98 % of 100 images, and 76 to 99 % of 20.
FEW = 100

# On the page of a run.
_MAX_EXAMPLES = 18
_MAX_MISTAKES = 6


class Classification(Task):
    """The model gives a logit for each class; labels are one-hot, multi-hot or soft."""

    keys: Sequence[tuple[str, Any, str, Mapping[str, Any]]] = (
        ("loss", "softmax", "of a classifier", {"choices": ("softmax", "sigmoid")}),
        ("label_smoothing", 0.0, "part of a training label spread over all classes", {"below": 1}),
        ("class_weights", "", "`balanced`, or one number for each class, separated by commas", {}),
        (
            "calibration.temperature",
            False,
            "whether the run ends with logits divided by what makes the evaluated images' "
            "probabilities true",
            {"resumable": True},
        ),
        (
            "calibration.accuracy",
            0.0,
            "part of the answers that shall be right: model.thresholds refuse less probable ones; "
            "0 refuses none",
            {"below": 1, "resumable": True},
        ),
    )
    answer_columns: Mapping[str, str] = {
        "classes": "int32",
        "names": "string",
        "probabilities": "float",
    }
    shown = ("classes", "class", "probability")
    encodes_labels_alone = True
    metrics: tuple[Metric, ...] = (
        Metric("top1", "top-1 accuracy", of_images=True, panel="accuracy"),
        Metric("top5", "top-5 accuracy", of_images=True, of_more_than=5),
    )

    def require_output(self, model: keras.Model, num_classes: int, dataset: str) -> None:
        given = model.arguments["num_classes"]
        # A representation may have as many numbers as there are classes.
        if not given or model.output_shape[1:] != (num_classes,):
            raise UsageError(
                f"config.model.num_classes: expected {num_classes}, the classes of {dataset}, and "
                f"a classifier that pools. Received: {given}, for an output of "
                f"{model.output_shape}."
            )

    def encode(self, example: dict[str, tf.Tensor], num_classes: int) -> dict[str, tf.Tensor]:
        """Encodes classes; labels that are floats already have a number for each class."""
        encoded = {"image": example["image"]}
        for key in example.keys() - encoded:
            label = example[key]
            if label.shape.rank == 3:
                raise UsageError(
                    f"Expected classes of images. Received: a data set with a map of classes, "
                    f"{tuple(label.shape)}. Set config.masks.decoder to mask or linear."
                )
            if label.dtype.is_integer:
                label = encode_classes(label, num_classes)
            elif label.shape[-1:] != (num_classes,):
                raise ValueError(
                    f"Expected operations on labels to end with ({num_classes},), a number for "
                    f"each class. Received: {tuple(label.shape)}."
                )
            encoded[key] = label
        return encoded

    def counts(self, example: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Whether an image has a label."""
        import tensorflow as tf

        return tf.reduce_any(example["label"] > 0)

    def losses(self, config: ConfigDict, split: Any) -> Callable[[keras.Model, Any], Any]:
        from keras_vit.losses import build_loss

        from .class_weights import class_weights

        weights = class_weights(config.class_weights, split)
        loss = build_loss(config.loss, config.label_smoothing, weights)
        return lambda model, batch: loss.call(batch["label"], model(batch["image"], training=True))

    def batch_sums(self, loss: str) -> BatchSums:
        from keras import ops

        from keras_vit.losses import build_loss

        from .evaluation import counted_sums

        # Evaluation takes the labels as they are.
        built = build_loss(loss)

        def sums(model, batch):
            logits = ops.cast(model(batch["image"], training=False), "float32")
            return counted_sums(logits, batch["label"], batch[COUNTED], built)

        return sums

    def means(self, sums: Iterable[float]) -> dict[str, float]:
        from .evaluation import means

        return means(sums)

    def evaluate(self, model: Any, batches: Batches, dataset: Any, loss: str) -> Evaluation:
        from . import evaluation

        outputs = evaluation.logits_in_order(model, dataset, loss)
        metrics = evaluation.measure(outputs, batches, loss)
        confusion, names = metrics.pop("confusion"), model.interface.class_names
        by_class, note = evaluation.per_class(confusion, dataset.class_names or names), ""
        if several := metrics["count"] - confusion.sum():
            note = (
                f"{several} of the {metrics['count']} images of {dataset.name} have several "
                "labels: the figures of classes are without them."
            )
        matrix = evaluation.confusion_table(confusion, [row[0] for row in by_class.rows])
        return Evaluation(metrics, {"per_class": by_class, "confusion": matrix}, note)

    def finishes(self, config: ConfigDict) -> bool:
        return bool(config.calibration.temperature or config.calibration.accuracy)

    def finish(
        self, model: Any, config: ConfigDict, batches: Batches, dataset: Any
    ) -> dict[str, str]:
        """Divides the head by a temperature and sets the least probability, where asked for."""
        from keras_vit.models.image_model import HEADS

        from . import calibration

        wanted, said, trained = config.calibration, {}, model.model
        pairs = [pair for _, *pair in _labeled(model, batches, dataset)]
        labels, logits = map(np.concatenate, zip(*pairs, strict=True))
        count = f"on {len(labels):,} held-out images"
        if len(labels) < FEW:
            margin = self.metrics[0].margin(0.95, len(labels))
            logger.warning(
                "config.calibration: expected %d held-out images or more. Received: %d, of which "
                "a share of right answers of 95 %% is known to be in %s alone. Hold out more.",
                *(FEW, len(labels), margin),
            )
        if wanted.temperature and (logits.argmax(-1) == labels).all():
            # Its cross-entropy falls with the temperature down to 0.
            logger.warning(
                "config.calibration.temperature: none can be told, all is right %s.", count
            )
        elif wanted.temperature:
            temperature = calibration.best_temperature(logits, labels)
            logits = logits / temperature
            # A model of two heads gives their mean.
            for head in (each for each in trained.layers if each.name in HEADS):
                head.set_weights([each / temperature for each in head.get_weights()])
            said["the temperature in its head"] = f"{temperature:.4g}, the best {count}"
        if wanted.accuracy:
            confidences, hits = _confidences(trained, logits), logits.argmax(-1) == labels
            least = calibration.least_confidence(confidences, hits, wanted.accuracy)
            if least is None:
                expected = (
                    "config.calibration.accuracy: expected less than %g. Nothing is refused: "
                )
                expected += "%s, no probability has so many right answers above it."
                logger.warning(expected, wanted.accuracy, count)
                return said
            if not least:
                text = "config.calibration.accuracy: %s, every answer is as good. None is refused."
                logger.warning(text, count)
                return said
            trained.thresholds = (least,) * logits.shape[-1]
            refused = f"refuse {100 * np.mean(confidences < least):.2f} % {count}"
            said["thresholds"] = f"{least:.4f}, which {refused}"
        return said

    def answers(
        self, model: Any, outputs: np.ndarray, names: Sequence[str] | None, top: int
    ) -> list[dict[str, list]]:
        from keras_vit.predict_photos import most_probable

        from .evaluation import require_probabilities

        if model.interface.output == "probabilities":
            require_probabilities(outputs)
        best, probabilities = most_probable(outputs, model.interface.applied or "softmax", top)
        classes = outputs.shape[-1]
        require_names(names, classes)
        least, found = model.interface.thresholds or [-float("inf")] * classes, []
        if len(least) != classes:
            raise ValueError(f"Expected {classes} thresholds, one a class. Received: {len(least)}.")
        for row in zip(best.tolist(), probabilities.tolist(), strict=True):
            kept = [(k, value) for k, value in zip(*row, strict=True) if value >= least[k]]
            found.append(
                {
                    "classes": [k for k, _ in kept],
                    "names": [names[k] if names else str(k) for k, _ in kept],
                    "probabilities": [value for _, value in kept],
                }
            )
        return found

    def page_arrays(self, source: Any, batches: Batches, dataset: Any) -> dict[str, np.ndarray]:
        """Labels and predictions of images with one label, as outputs of the model; some images."""
        found = _labeled(source, batches, dataset)
        images, labels, logits = map(np.concatenate, zip(*found, strict=True))
        predictions = logits.argmax(axis=-1)
        chosen = _chosen(labels, predictions)
        shown, best = images[chosen], predictions[chosen]
        look, why = source.rollout, source.class_maps
        least = (source.interface.thresholds or [0])[0]
        return {
            "labels": labels,
            "predictions": predictions,
            "confidences": _confidences(source.model, logits),
            "least": np.array(least),
            "chosen": chosen,
            "images": as_bytes(shown),
            "attention": look(shown) if look and len(chosen) else np.zeros(0),
            "evidence": why(shown, best) if why and len(chosen) else np.zeros(0),
        }

    def page_content(
        self, arrays: Mapping[str, np.ndarray], class_names: Sequence[str] | None
    ) -> tuple[int, list[Section]]:
        from .calibration import calibration_error
        from .evaluation import class_sections

        if not (count := len(arrays["labels"])):
            return 0, []
        # Only classes that occur: the matrix of all could be too large for the memory.
        both = np.stack([arrays["labels"], arrays["predictions"]])
        classes, places = np.unique(both, return_inverse=True)
        labels, predictions = places.reshape(both.shape)
        names = [class_names[each] if class_names else str(each) for each in classes]
        confusion = np.zeros((len(classes), len(classes)), np.int64)
        np.add.at(confusion, (labels, predictions), 1)
        hits, confidences = labels == predictions, arrays["confidences"]
        drawn = {name: arrays[name] for name in ("attention", "evidence") if len(arrays[name])}
        pictures = []
        for place, number in enumerate(arrays["chosen"]):
            label, image = names[labels[number]], arrays["images"][place]
            mistake = "" if hits[number] else f", taken for {names[predictions[number]]}"
            maps = {name: each[place] for name, each in drawn.items()}
            kind = "right" if hits[number] else "wrong"
            pictures.append(Picture(image, label + mistake, label, maps, kind))
        title = "Examples and where the model looks"
        examples = Section("examples", title, "Mistakes come first.", pictures=pictures)
        error, *points = calibration_error(confidences, hits)
        note = f"Expected calibration error: {100 * error:.2f} %, on {count:,} images."
        if least := float(arrays["least"]):
            kept = confidences >= least
            note += f" {100 * np.mean(~kept):.2f} % are refused, below the probability {least:.4f}"
            note += (
                f"; of the others {100 * hits[kept].mean():.2f} % are right." if any(kept) else "."
            )
        chart = Chart("", points, ("mean probability", "part that is right"))
        reliability = Section("charts", "Reliability", note, charts=[chart])
        return count, [*class_sections(confusion, names), examples, reliability]


def _labeled(source, batches, dataset):
    """Yields (images, labels, logits) of the images with one label, labels as the model's."""
    from .evaluation import class_order

    outputs = class_order(source.interface.class_names, dataset.class_names, dataset.name)
    for batch in batches:
        images, rows = np.asarray(batch["image"]), np.asarray(batch["label"])
        kept = (np.asarray(batch[COUNTED]) > 0) & (np.count_nonzero(rows, axis=-1) == 1)
        labels = rows.argmax(axis=-1)
        labels = labels if outputs is None else np.array(outputs)[labels]
        yield images[kept], labels[kept], source.model.predict_on_batch(images)[kept]


def _confidences(model, logits):
    from keras import ops

    from keras_vit.models.image_model import ACTIVATIONS

    return ops.convert_to_numpy(ACTIVATIONS[model.activation](logits)).max(axis=-1)


def _chosen(labels, predictions):
    """Returns which images are shown: some mistakes, then one of each class."""
    wrong = np.flatnonzero(labels != predictions)[:_MAX_MISTAKES]
    right = np.flatnonzero(labels == predictions)
    _, first = np.unique(labels[right], return_index=True)
    return np.concatenate([wrong, right[first]])[:_MAX_EXAMPLES].astype(int)


def encode_classes(label: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Returns a class one-hot, or a list of classes multi-hot, float32 (num_classes,).

    An empty list gives zeros. A class outside 0..num_classes-1 gives NaN, which every pipeline
    refuses. Raises `ValueError` for labels that are no integers.
    """
    import tensorflow as tf

    label = tf.convert_to_tensor(label)
    if not label.dtype.is_integer:
        raise ValueError(f"Expected one_hot of classes, ints. Received: {label.dtype.name}.")
    zero = tf.where(tf.reduce_all((label >= 0) & (label < num_classes)), 0.0, float("nan"))
    if label.shape.rank == 0:
        return tf.one_hot(label, num_classes, 1.0, zero)
    # A maximum over no rows would be -inf.
    found = tf.minimum(tf.reduce_sum(tf.one_hot(label, num_classes), axis=0), 1.0)
    return tf.ensure_shape(found + zero, (num_classes,))
