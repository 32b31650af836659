"""Numbers of a photo, such as an age or a weight, from the columns of a table.

Targets are standardized by mean and deviation of the photos that train. A saved model has both in
its head: its outputs are numbers in the table's units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from ..errors import UsageError
from ..io.printed_table import Table
from .base import Chart, Evaluation, Metric, Section, worst_section
from .table_task import TableTask, known_cells

if TYPE_CHECKING:
    import keras


class Numbers(TableTask):
    """The model gives the number of each column, in its own unit."""

    chosen_by = "numbers.loss"
    classifies = "number"
    learns = "numbers"
    keys = (
        (
            chosen_by,
            "",
            "mse or huber, of standardized numbers: the columns of a table; empty classifies",
            {"choices": ("", "mse", "huber")},
        ),
    )
    # Means over the columns.
    metrics = (
        Metric("r2", "R²", panel="R²"),
        Metric("spearman", "Spearman's rank correlation"),
        Metric("mae", "MAE", is_share=False, panel="MAE"),
        Metric("rmse", "RMSE", is_share=False),
    )
    answer_columns: Mapping[str, str] = {"classes": "int32", "names": "string", "values": "float"}
    shown = ("numbers", "name", "value")

    def model_to_train(
        self, model: keras.Model, config: ConfigDict, num_classes: int
    ) -> keras.Model:
        model.activation = "linear"
        return model

    def start(self, model: keras.Model, split: Any) -> None:
        """Lets the head learn standardized numbers, until it is saved."""
        standardize(model.get_layer("head"), *statistics(split))

    def require_held_out(self, split: Any) -> None:
        if split.dataset.kind != "numbers":
            return
        rows = _rows(split)
        if not any(len(np.unique(column[~np.isnan(column)])) > 1 for column in rows.T):
            raise UsageError(
                "config.eval_split: expected photos of different numbers, of which R² says "
                f"something, in {split.text}. Received: {len(rows)} with one number, or none."
            )

    def losses(self, config: ConfigDict, split: Any) -> Callable[[keras.Model, Any], Any]:
        from keras import ops

        _, deviations = statistics(split)

        def losses(model, batch):
            outputs = ops.cast(model(batch["image"], training=True), "float32")
            errors = ops.abs(outputs - batch["label"]) / deviations * batch["known"]
            squares = ops.square(errors)
            if config.numbers.loss == "huber":
                squares = ops.where(errors < 1, squares / 2, errors - 0.5)
            return ops.mean(squares, axis=-1)

        return losses

    def errors(self, outputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.abs(np.nan_to_num(outputs - rows))

    def measured(self, outputs: np.ndarray, rows: np.ndarray, interface: Any) -> Evaluation:
        names = interface.class_names or [*map(str, range(rows.shape[1]))]
        known = [*known_cells(outputs, rows)]
        found = np.array([measures(*each) for each in known])
        lines = [
            (name, str(len(each)), *map(_text, self.metrics, row))
            for name, (each, _), row in zip(names, known, found, strict=True)
        ]
        columns = ("number", "images", *(metric.heading for metric in self.metrics))
        with np.errstate(invalid="ignore"):
            # NaN where no column says anything.
            means = (np.nansum(found, axis=0) / np.sum(~np.isnan(found), axis=0)).tolist()
        metrics = dict(zip((metric.name for metric in self.metrics), means, strict=True))
        # The mean squared error, in units of the numbers' variance.
        metrics = {"loss": 1 - metrics["r2"], **metrics, "count": len(rows)}
        return Evaluation(metrics, {"per_class": Table(columns, lines, "Numbers")})

    def answers(
        self, model: Any, outputs: np.ndarray, names: Sequence[str] | None, top: int
    ) -> list[dict[str, list]]:
        """Returns the numbers in the order of their columns."""
        found = super().answers(model, outputs, names, top)
        return [{**each, "values": each.pop("probabilities")} for each in found]

    def page_content(
        self, arrays: Mapping[str, np.ndarray], class_names: Sequence[str] | None
    ) -> tuple[int, list[Section]]:
        outputs, rows, names = arrays["outputs"], arrays["labels"], class_names or ()
        captions = []
        for number in arrays["chosen"]:
            both = zip(names, rows[number], outputs[number], strict=True)
            said = [f"{name} {true:g}, predicted {found:.4g}" for name, true, found in both]
            captions.append("; ".join(said))
        both = zip(names, rows.T, outputs.T, strict=True)
        charts = [Chart(name, columns, ("true", "predicted")) for name, *columns in both]
        note = "A point for each image. On the line both are the same."
        charts = Section("charts", "Predicted against true", note, charts=charts)
        return len(rows), [charts, worst_section(arrays["images"], captions, len(rows))]


def _text(metric, value):
    return metric.text(value).removesuffix(" %")


def _rows(split):
    """Returns the numbers of the photos of a split, (photos, columns), NaN where unknown."""
    return np.array([split.dataset.photos.targets[photo.path] for photo in split.photos])


def statistics(split: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and deviation of each column over the photos of a split, float32 (columns,).

    Raises UsageError for other data, or a column whose known numbers are all the same.
    """
    if split.dataset.kind != "numbers":
        raise UsageError(
            "config.numbers.loss: expected csv:TABLE with a column value, or several of numbers. "
            f"Received: {split.dataset.name}."
        )
    rows = _rows(split)
    for name, column in zip(split.dataset.class_names, rows.T, strict=True):
        if not np.nanmax(column, initial=-np.inf) > np.nanmin(column, initial=np.inf):
            raise UsageError(f"Expected numbers that differ in the column {name} of {split.text}.")
    return tuple(f(rows, axis=0).astype(np.float32) for f in (np.nanmean, np.nanstd))  # type: ignore


def standardize(head: keras.layers.Dense, means: np.ndarray, deviations: np.ndarray) -> None:
    """Lets a head compute deviations (W x + b) + means, and learn standardized numbers so.

    A head that is trained gives the same as before. Its file has a plain head of the products.
    """
    kernel, bias = head.get_weights()
    if kernel.any():
        head.set_weights([kernel / deviations, (bias - means) / deviations])
    call = head.call

    def save_own_variables(store):
        kernel, bias = map(np.asarray, head.get_weights())
        store["0"], store["1"] = kernel * deviations, bias * deviations + means

    head.call = lambda inputs, training=None: call(inputs) * deviations + means
    head.save_own_variables = save_own_variables


def measures(predicted: np.ndarray, true: np.ndarray) -> tuple[float, float, float, float]:
    """Returns R², Spearman's rank correlation, MAE and RMSE; both are (images,).

    NaN where they say nothing: of no numbers, or of correlations where all are the same.
    """
    from scipy.stats import spearmanr  # slow to import

    if not len(true):
        return (np.nan,) * 4
    predicted, true = predicted.astype(np.float64), true.astype(np.float64)
    both_vary, errors = np.ptp(predicted) and np.ptp(true), predicted - true
    correlation = spearmanr(predicted, true)[0] if both_vary else np.nan
    square, variance = np.mean(errors**2), np.var(true)
    r2 = 1 - square / variance if variance else np.nan
    return r2, correlation, np.mean(np.abs(errors)), np.sqrt(square)
