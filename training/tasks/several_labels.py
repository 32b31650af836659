"""Several labels: each class is on an image or is not, whatever the others are.

Average precision and F1 are those of scikit-learn, over the images of which a class is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from ..io.printed_table import Table
from .base import Batches, Evaluation, Metric, Section, worst_section
from .table_task import TableTask, known_cells

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


# The asymmetric loss (Ridnik et al., 2021), as its authors train on COCO, has this exponent of easy
# negatives, and takes a negative of less than this probability for none.
GAMMA, MARGIN = 4, 0.05
_EVEN = 0.5
# Where a class has fewer images, one of them moves its recall by more than 10 points.
FEW = 10

logger = logging.getLogger("keras_vit")


class SeveralLabels(TableTask):
    """The model gives a logit for each class, whose sigmoid is the probability that it is there."""

    chosen_by = "several_labels.loss"
    classifies = "labels"
    learns = "labels"
    keys = (
        (
            chosen_by,
            "",
            "sigmoid or asymmetric: any number of classes for an image; empty: one",
            {"choices": ("", "sigmoid", "asymmetric")},
        ),
    )
    metrics = (
        Metric("map", "mAP", panel="mAP"),
        Metric("f1_micro", "micro F1", panel="micro F1"),
        Metric("f1_macro", "macro F1", panel="macro F1"),
    )

    def takes(self, kind: str) -> bool:
        """Whether it is of such data; a class, or a list of them, is several labels as well."""
        return kind not in ("masks", "numbers")

    def model_to_train(
        self, model: keras.Model, config: ConfigDict, num_classes: int
    ) -> keras.Model:
        if model.arguments["num_classes"] == num_classes:
            model.activation, model.thresholds = "sigmoid", (_EVEN,) * num_classes
        return model

    def encode(self, example: dict[str, tf.Tensor], num_classes: int) -> dict[str, tf.Tensor]:
        """Encodes a row as `TableTask` does; a class, or a list of them, as 0 and 1, all known."""
        import tensorflow as tf

        from .classification import encode_classes

        label = example["label"]
        if not label.dtype.is_integer or (label.shape.rank or 0) > 1:
            return super().encode(example, num_classes)
        row = encode_classes(label, num_classes)
        return {"image": example["image"], "label": row, "known": tf.ones_like(row)}

    def losses(self, config: ConfigDict, split: Any) -> Callable[[keras.Model, Any], Any]:
        from keras import ops

        is_asymmetric = config.several_labels.loss == "asymmetric"

        def losses(model, batch):
            logits = ops.cast(model(batch["image"], training=True), "float32")
            absent = -ops.log_sigmoid(-logits)
            if is_asymmetric:
                shifted = ops.relu(ops.sigmoid(logits) - MARGIN)
                absent = -(shifted**GAMMA) * ops.log1p(-shifted)
            labels, present = batch["label"], -ops.log_sigmoid(logits)
            each = labels * present + (1.0 - labels) * absent
            return ops.sum(batch["known"] * each, axis=-1)

        return losses

    def logits(self, model: Any) -> Any:
        from .classification.evaluation import logits_of

        return logits_of(model, "sigmoid") if model.interface.output == "probabilities" else model

    def errors(self, outputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns the sigmoid cross-entropy."""
        logits, known = outputs.astype(np.float64), ~np.isnan(rows)
        return known * (np.logaddexp(0, logits) - np.nan_to_num(rows) * logits)

    def measured(self, outputs: np.ndarray, rows: np.ndarray, interface: Any) -> Evaluation:
        thresholds = interface.thresholds or [_EVEN] * rows.shape[1]
        table, counts = _by_class(outputs, rows, thresholds, interface.class_names)
        precisions, hits, answered, present = counts
        found = {
            "map": float(np.nanmean(precisions)) if present.any() else 0.0,
            "f1_micro": float(_f1(hits.sum(), answered.sum(), present.sum())),
            "f1_macro": float(np.mean(_f1(hits, answered, present))),
        }
        loss, note = float(self.errors(outputs, rows).sum(axis=1).mean()), ""
        if set(thresholds) != {_EVEN}:
            note = "F1 is at the model's thresholds: on the images that chose them it is too high."
        return Evaluation({"loss": loss, **found, "count": len(rows)}, {"per_class": table}, note)

    def finishes(self, config: ConfigDict) -> bool:
        return True

    def finish(
        self, model: Any, config: ConfigDict, batches: Batches, dataset: Any
    ) -> dict[str, str]:
        """Chooses the threshold of each class that has the largest F1 on held-out images."""
        outputs, rows, _ = self.collected(model, batches, dataset)
        names = model.interface.class_names or [*map(str, range(rows.shape[1]))]
        if few := [names[i] for i in np.flatnonzero(np.sum(rows > 0, axis=0) < FEW)]:
            logger.warning(
                "Expected %d held-out images or more of each class, to choose its threshold on. %d "
                "of %d classes have fewer, so one image moves recall by more than 10 points: %s%s.",
                *(FEW, len(few), len(names), ", ".join(few[:10]), ", …" * (len(few) > 10)),
            )
        model.model.thresholds = [best_threshold(*each) for each in known_cells(outputs, rows)]
        return {"thresholds": f"of each class, by its F1 on {len(rows):,} held-out images"}

    def page_content(
        self, arrays: Mapping[str, np.ndarray], class_names: Sequence[str] | None
    ) -> tuple[int, list[Section]]:
        outputs, rows, thresholds = (arrays[key] for key in ("outputs", "labels", "thresholds"))
        table, (precisions, *_) = _by_class(outputs, rows, thresholds, class_names)
        order = np.argsort(precisions)
        names, captions = [row[0] for row in table.rows], []
        for number in arrays["chosen"]:
            has = rows[number] > 0, sigmoid(outputs[number]) >= thresholds
            is_, said = (", ".join(np.array(names)[each]) or "nothing" for each in has)
            captions.append(f"{is_}; the answer: {said}")
        note = "The worst average precision first. F1 is at the threshold of each class."
        shown = Table(table.columns, [table.rows[i] for i in order])
        classes = Section("classes", "Classes", note, shown)
        return len(rows), [classes, worst_section(arrays["images"], captions, len(rows))]


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities, float64, without an overflow."""
    return np.exp(-np.logaddexp(0, -np.asarray(logits, np.float64)))


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the threshold on the sigmoid of scores of the largest F1, the highest of equal ones.

    It is in the middle between two images; 0.5 of a class without any.
    """
    if not labels.any():
        return _EVEN
    # As files have them: those of large scores are equal.
    order, scores = np.argsort(-scores, kind="stable"), sigmoid(scores).astype(np.float32)
    ends = np.flatnonzero(np.diff(scores[order], append=-np.inf))
    hits, cuts = np.cumsum(labels[order])[ends], scores[order][ends]
    best = int(np.argmax(_f1(hits, ends + 1, hits[-1])))
    least, below = cuts[best], [*cuts, np.float32(0)][best + 1]
    middle = (least + below) / np.float32(2)
    return float(middle if middle > below else least)


def _f1(hits, answered, present):
    return 2 * hits / np.maximum(answered + present, 1)


def _by_class(outputs, rows, thresholds, names):
    """Returns a table, and average precision, right answers, answers and labels, (4, classes)."""
    from sklearn.metrics import average_precision_score  # slow to import

    known, labels = ~np.isnan(rows), rows > 0
    answered = (sigmoid(outputs) >= np.asarray(thresholds)) & known
    counts = [each.sum(axis=0) for each in (answered & labels, answered, labels)]
    # NaN of a class that no image has.
    precisions = [
        average_precision_score(cells, scores) if cells.any() else np.nan
        for scores, cells in known_cells(outputs, rows)
    ]
    numbers = np.array([precisions, *counts])
    lines = []
    for number, (precision, hits, said, present) in enumerate(numbers.T):
        shares = ((precision, 1), (hits, said), (hits, present), (2 * hits, said + present))
        first, *others = ("–" if a != a or not b else f"{100 * a / b:.2f}" for a, b in shares)
        of = f"{present:.0f} of {known[:, number].sum()}"
        name = names[number] if names else str(number)
        lines.append((name, of, first, f"{thresholds[number]:.3f}", *others))
    columns = ("class", "images", "AP %", "threshold", "precision %", "recall %", "F1 %")
    return Table(columns, lines), numbers
