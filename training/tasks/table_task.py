"""The base of the tasks whose labels are rows of numbers, from a table of photos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from .base import COUNTED, Batches, Evaluation, as_bytes
from .classification import Classification

if TYPE_CHECKING:
    import tensorflow as tf

# Photos on the page of a run.
_WORST = 12


class TableTask(Classification):
    """The model gives a number for each column; cells that nobody knows count neither way.

    Its numbers are computed of all outputs of a split at once: ranks cannot be added up.
    """

    encodes_labels_alone = False
    of_whole_split = True
    unused = (
        (
            "loss label_smoothing class_weights calibration.temperature calibration.accuracy "
            "few_shot.datasets",
            "no loss, label_smoothing, class_weights, calibration or few_shot.datasets beside it",
        ),
        ("distill.teacher", "'': a table is learned from its numbers alone"),
    )
    no_mixup = "config.mixup_p: expected 0, as cells of a table may be empty"

    def encode(self, example: dict[str, tf.Tensor], num_classes: int) -> dict[str, tf.Tensor]:
        """Encodes a row as "label", 0 where unknown, and "known", 0 or 1; float32 (columns,)."""
        import tensorflow as tf

        label = example["label"]
        if label.dtype.is_integer or label.shape != (num_classes,):
            raise UsageError(
                f"config.{self.chosen_by}: expected data with a number for each column, such as "
                f"csv:FILE. Received: labels of shape {tuple(label.shape)}, {label.dtype.name}."
            )
        known = tf.logical_not(tf.math.is_nan(label))
        row = tf.where(known, label, tf.zeros_like(label))
        return {"image": example["image"], "label": row, "known": tf.cast(known, tf.float32)}

    def counts(self, example: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Whether anything is known of an image."""
        import tensorflow as tf

        return tf.reduce_any(example["known"] > 0)

    def evaluate(self, model: Any, batches: Batches, dataset: Any, loss: str) -> Evaluation:
        outputs, rows, _ = self.collected(model, batches, dataset)
        return self.measured(outputs, rows, model.interface)

    def measured(self, outputs: np.ndarray, rows: np.ndarray, interface: Any) -> Evaluation:
        """Returns the evaluation of outputs, of rows with NaN where unknown, (images, columns)."""
        raise NotImplementedError

    def errors(self, outputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns the loss of each cell, 0 where the row is NaN; arguments as of `measured`."""
        raise NotImplementedError

    def logits(self, model: Any) -> Any:
        """Returns the function of images to outputs as the model was trained to give them."""
        return model

    def collected(
        self, model: Any, batches: Batches, dataset: Any, shown: int = 0
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Returns outputs and rows of the images that count, in the order of the model's columns.

        And {"chosen": numbers, "images": as batches have them} of the `shown` largest errors.
        Raises ValueError if there are no images, or outputs do not fit.
        """
        from .classification.evaluation import class_order

        order = class_order(model.interface.class_names, dataset.class_names, dataset.name)
        found, worst, count, function = [], [], 0, self.logits(model)
        for batch in batches:
            kept = np.asarray(batch[COUNTED]) > 0
            images = np.asarray(batch["image"])
            rows = np.where(np.asarray(batch["known"]) > 0, np.asarray(batch["label"]), np.nan)
            outputs = np.asarray(function(images), "float32")
            # `order` says which column of the model is each of the data.
            rows = rows[:, np.argsort(order)] if order else rows
            if outputs.shape != rows.shape or not np.isfinite(outputs[kept]).all():
                raise ValueError(
                    f"Expected finite outputs of shape (images, {rows.shape[-1]}), a number for "
                    f"each column of {dataset.name}. Received: shape {outputs.shape}."
                )
            images, outputs, rows = images[kept], outputs[kept], rows[kept]
            found.append((outputs, rows))
            errors = self.errors(outputs, rows).sum(axis=1) if shown else ()
            worst += [(-error, count + i, images[i]) for i, error in enumerate(errors)]
            worst, count = sorted(worst, key=lambda each: each[:2])[:shown], count + len(rows)
        if not count:
            raise ValueError("Expected at least one image with a known cell. Received: none")
        outputs, rows = map(np.concatenate, zip(*found, strict=True))
        chosen = {"chosen": np.array([number for _, number, _ in worst], int)}
        return outputs, rows, chosen | {"images": np.array([image for *_, image in worst])}

    def answers(
        self, model: Any, outputs: np.ndarray, names: Sequence[str] | None, top: int
    ) -> list[dict[str, list]]:
        """Returns all columns, of classes those at or above their thresholds, the best first."""
        return super().answers(model, outputs, names, outputs.shape[-1])

    def page_arrays(self, source: Any, batches: Batches, dataset: Any) -> dict[str, np.ndarray]:
        """Outputs and rows of all images, and the images of the largest errors."""
        outputs, rows, found = self.collected(source, batches, dataset, _WORST)
        found["images"] = as_bytes(found["images"])
        thresholds = np.array(source.interface.thresholds or ())
        return {"outputs": outputs, "labels": rows, "thresholds": thresholds, **found}


def known_cells(outputs: np.ndarray, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields outputs and cells of each column, of the images of which a cell is known; (images,).

    Both are (images, columns), NaN in `rows` where nobody knows.
    """
    for each, cells in zip(outputs.T, rows.T, strict=True):
        known = ~np.isnan(cells)
        yield each[known], cells[known]
