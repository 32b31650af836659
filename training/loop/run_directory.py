"""The files of a run: its config, its metrics, and the model that comes out of it."""

import csv
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
from ml_collections import ConfigDict

from keras_vit.hidden_folder import remove_unfinished
from training import config_keys
from training.data import fingerprint
from training.errors import UsageError
from training.evaluators.classification import ClassificationEvaluator
from training.io.atomic import whole_file, write_text
from training.io.local_path import local_path
from training.io.run_config import read_run_config
from training.loop import tensorboard_events
from training.reporting.read_metrics import metric_rows

METRICS = (
    "step",
    "loss",
    "learning_rate",
    "gradient_norm",
    "images_per_second",
    *ClassificationEvaluator.names,
)


class RunDirectory:
    """`config.json`, `metrics.csv`, `tensorboard/`, `checkpoints/` and `model.keras` of a run.

    Nothing is created before `open`.

    Args:
        path: the work directory.
        config: a complete config.
    """

    def __init__(self, path: str | os.PathLike, config: ConfigDict):
        self.path = local_path(path)
        self.config = config
        self._metrics: Any = None
        self._events: Any = None

    @property
    def checkpoints(self) -> pathlib.Path:
        """Folder of the checkpoints that a run resumes from."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> pathlib.Path:
        """Folder of the TensorBoard events."""
        return self.path / "tensorboard"

    def check(self, data: Mapping[str, Any]) -> None:
        """Checks that the directory is new or holds a run of the same config and data.

        Args:
            data: of `fingerprint.describe`.

        Raises:
            UsageError: otherwise.
        """
        if self.tensorboard.exists() and not self.tensorboard.is_dir():
            raise UsageError(f"Expected {self.tensorboard} to be a folder: it is a file. Move it.")
        self._metric_rows()
        file = self.path / "config.json"
        if not file.exists():
            return
        before = read_run_config(file)
        data_before = before.pop("data")
        changes = config_keys.differences(before, json.loads(config_keys.to_json(self.config)))
        if changes:
            raise UsageError(
                f"{self.path} holds a run of another config ({'; '.join(changes)}). "
                "Use another --workdir, or the values of its config.json to resume it."
            )
        accept = self.config.data_changed == "accept"
        fingerprint.require_same(data_before, data, str(self.path), accept)

    def _metric_rows(self):
        file = self.path / "metrics.csv"
        return metric_rows(file) if file.exists() else []

    def open(self, step: int, names: Iterable[str], data: Mapping[str, Any]) -> None:
        """Creates the directory, writes the config and drops what was logged after `step`.

        Args:
            step: number of updates done.
            names: of the metrics of evaluators; those beyond `METRICS` get columns after them.
            data: of `fingerprint.describe`, written into the config.
        """
        import tensorflow as tf

        columns = list(dict.fromkeys((*METRICS, *names)))
        remove_unfinished(self.path)
        write_text(self.path / "config.json", config_keys.to_json(self.config, data))
        file = self.path / "metrics.csv"
        rows = [row for row in self._metric_rows() if int(row["step"]) <= step]
        columns += [name for row in rows[:1] for name in row if name not in columns]
        with whole_file(file) as temporary, temporary.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(rows)
        self._metrics = file.open("a", newline="")
        self._rows = csv.DictWriter(self._metrics, columns)
        tensorboard_events.drop_after(self.tensorboard, step)
        self._events = tf.summary.create_file_writer(str(self.tensorboard))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Appends a row to `metrics.csv` and the TensorBoard events.

        Args:
            step: number of updates done.
            values: {name: number}, of the names that `open` was given and `METRICS`.
        """
        import tensorflow as tf

        row = {name: f"{value:.7g}" for name, value in values.items()}
        self._rows.writerow({"step": step, **row})
        self._metrics.flush()
        with self._events.as_default(step=step):
            for name, value in values.items():
                # As tf.summary.scalar does, which wants the tensorboard package to write.
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=_scalar_metadata())
        self._events.flush()

    def save_model(self, model: keras.Model, name: str = "model.keras") -> None:
        """Saves `model` under `name`, replacing the file only once the new one is complete."""
        with whole_file(self.path / name) as temporary:
            model.save(temporary)

    def close(self) -> None:
        """Closes what `open` opened, if it did."""
        for opened in (self._metrics, self._events):
            if opened is not None:
                opened.close()


def _scalar_metadata():
    import tensorflow as tf

    plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin)
    metadata.data_class = 1  # DATA_CLASS_SCALAR
    return metadata
