"""The directory of a run: its lock, its copy in a store, and its files."""

import concurrent.futures
import contextlib
import csv
import functools
import json
import logging
import os
import pathlib
import re
import struct
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf
from ml_collections import ConfigDict

from keras_vit.files.hidden_folder import remove_unfinished

from ..config import schema
from ..data.sets import fingerprint
from ..engine.checkpoints import steps
from ..errors import TrainingError, UsageError
from ..io.atomic import atomic_file, write_text
from ..io.locks import lock
from ..io.paths import any_path, is_remote
from ..io.remote_stores import FolderCopy
from ..reporting.metrics_csv import metric_rows
from ..source_facts import read_run_config
from ..tasks import task_of

logger = logging.getLogger("keras_vit")

# The first columns of `metrics.csv`; those of evaluators follow.
COLUMNS = ("step", "loss", "learning_rate", "gradient_norm", "images_per_second")
# As TensorFlow names the files of `tensorboard`: copies have other names.
EVENTS = re.compile(r"events\.out\.tfevents\.\d+\..+\.v2", re.DOTALL)
# As `tf.summary.scalar`, which needs the package tensorboard, writes it; 1 is DATA_CLASS_SCALAR.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"), data_class=1
)


class RunDirectory:
    """`config.json`, `metrics.csv`, `tensorboard/`, `checkpoints/` and `model.keras` of a run.

    A run in a store works in a copy on this machine, `path`, which is uploaded after every save: a
    state counts once it is in the store. Only one process uploads, so several JAX processes, each
    of which writes its part of a state, need a folder that all see.

    A context, which uploads what is left and releases the directory at its end. Nothing is created
    in the directory before `acquire`.

    Args:
        address: of the directory, on this machine or in a store.
        config: a complete config.
    """

    def __init__(self, address: str | os.PathLike, config: ConfigDict):
        self.address = any_path(address)
        self.config = config
        self._held, self._logs = contextlib.ExitStack(), contextlib.ExitStack()
        self._copy: FolderCopy | None = None
        if is_remote(self.address):
            self._copy = FolderCopy(self.address, skip=("checkpoints/damaged-",))
            self._held.callback(self._copy.close)
        self.path: pathlib.Path = self._copy.path if self._copy else self.address
        self.checkpoints, self.tensorboard = self.path / "checkpoints", self.path / "tensorboard"
        self._uploads: concurrent.futures.Executor | None = None
        self._place: os.stat_result | None = None
        self._pending: concurrent.futures.Future | None = None

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        with self._held:
            self._logs.close()
            if error is None:
                self.upload()

    def acquire(self) -> None:
        """Locks the directory for this process, as `locks.lock`; only then `upload` writes."""
        self._held.enter_context(lock(self.address))
        self._place = self.path.stat()
        # Entered after the lock and left before it: uploads end before another run may begin.
        self._uploads = self._held.enter_context(concurrent.futures.ThreadPoolExecutor(1))

    def download(self) -> None:
        """Copies here what an earlier run left in the store."""
        if self._copy:
            self._copy.download()

    def upload(self, wait: bool = True) -> None:
        """Sends what changed to the store, the files of a state before the list of states.

        Without `wait` the run goes on meanwhile. Raises `TrainingError` if it fails, or the one
        before did.
        """
        self.wait()
        if self._copy and self._uploads:
            self._pending = self._uploads.submit(self._copy.upload)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Waits for the upload that `upload` began, before any save.

        Raises `TrainingError` if it failed, or the directory was renamed or removed.
        """
        self._require_place()
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    def _require_place(self):
        """Keeps a save from making a folder of the old name anew."""
        if self._place and not (
            self.path.exists() and os.path.samestat(self._place, self.path.stat())
        ):
            raise TrainingError(
                f"Expected {self.path} to stay in its place. It was renamed or removed while the "
                "run wrote to it. Run the same command again, with --workdir as it is called now: "
                "it resumes from the last checkpoint."
            )

    @functools.cached_property
    def before(self) -> dict[str, Any] | None:
        """The config of the run that is there, with its data; None of a new one."""
        file = self.path / "config.json"
        return read_run_config(file) if file.exists() else None

    def check(self, data: dict[str, Any]) -> None:
        """Raises `UsageError` unless the directory is new or of a run of the same config and data.

        `data`, of `Dataset.describe`, gets a key `accepted`: `fingerprint.as_numbers` of the data
        before, each time that other data was accepted.
        """
        data["accepted"] = []
        self._metric_rows()
        if not self.before:
            return
        config, before = self.config, {**self.before}
        data_before = before.pop("data")
        step = max(steps(self.checkpoints), default=0)
        stopped = not (self.path / "model.keras").exists()
        if changes := schema.differences(before, json.loads(schema.to_json(config)), stopped):
            message = (
                f"{self.address} holds a run of another config ({'; '.join(changes)}). "
                "Use another --workdir, or the values of its config.json to resume it."
            )
            if (self.path / "model.keras").exists():
                message += (
                    " To train its model further: another --workdir, --config.checkpoint="
                    f"{self.address} and --config.checkpoint_head=keep."
                )
            raise UsageError(message)
        if config.total_steps < step and config.total_steps != before["total_steps"]:
            raise UsageError(
                f"config.total_steps: expected at least {step}, where {self.address} stands. "
                f"Received: {config.total_steps}. To end it there: keras-vit train "
                f"--workdir={self.address} --finish"
            )
        accept = config.data_changed == "accept"
        others = data_before["train"]["digest"] != data["train"]["digest"]
        if accept and others and task_of(config).learns == "numbers":
            raise UsageError(
                "config.data_changed: expected the numbers that the run began with, by whose mean "
                f"and deviation it learns. Those of {config.dataset} are others: put the table "
                f"back, or use another --workdir and --config.checkpoint={self.address}."
            )
        finished = step >= config.total_steps or (self.path / "model.keras").exists()
        models = {"model.keras": self.address, "best.keras": self.address / "best.keras"}
        found = (str(models[file]) for file in models if (self.path / file).exists())
        again = {"dataset": config.dataset, "model": next(found, "")}
        fingerprint.require_same(data_before, data, str(self.path), accept, finished, **again)
        data["accepted"] = list(data_before.get("accepted", ()))
        was, now = (fingerprint.as_numbers(each).tolist() for each in (data_before, data))
        if was != now:
            data["accepted"].append(was)
        elif not fingerprint.scores_others(data_before, data):
            # The times of then, so that every command says which files were written since.
            kept = {*fingerprint.SPLITS, "few_shot"} & data_before.keys()
            data.update({split: data_before[split] for split in kept})

    def _metric_rows(self):
        file = self.path / "metrics.csv"
        return metric_rows(file) if file.exists() else []

    def open(self, step: int, names: Iterable[str], data: Mapping[str, Any]) -> None:
        """Writes the config with `data`, drops what was logged after `step`, and opens the logs.

        `names` are of the metrics of evaluators, which get columns after `COLUMNS`; `data` is of
        `Dataset.describe`.
        """
        remove_unfinished(self.path)
        write_text(self.path / "config.json", schema.to_json(self.config, data))
        file = self.path / "metrics.csv"
        rows = [row for row in self._metric_rows() if int(row["step"]) <= step]
        columns = list(dict.fromkeys((*COLUMNS, *names, *(rows[0] if rows else ()))))
        with atomic_file(file) as temporary, temporary.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(rows)
        self._metrics = self._logs.enter_context(file.open("a", newline=""))
        self._rows = csv.DictWriter(self._metrics, columns)
        drop_events_after(self.tensorboard, step)
        self._events = tf.summary.create_file_writer(str(self.tensorboard))
        self._logs.callback(self._events.close)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Appends numbers, of `COLUMNS` and the names that `open` was given, to both logs."""
        row = {name: f"{value:.7g}" for name, value in values.items()}
        self._rows.writerow({"step": step, **row})
        self._metrics.flush()
        with self._events.as_default(step=step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=_SCALAR)
        self._events.flush()

    def identity_of(self, name: str) -> float:
        """Returns a number of the weights in a saved model; NaN if it is not there."""
        try:
            with zipfile.ZipFile(self.path / name) as archive:
                return float(archive.getinfo("model.weights.h5").CRC)
        except (OSError, KeyError, zipfile.BadZipFile):
            return float("nan")

    def save_model(self, model: keras.Model, name: str = "model.keras") -> None:
        """Saves `model` under `name`, replacing the file only once the new one is complete."""
        self._require_place()
        try:
            with atomic_file(self.path / name) as temporary:
                model.save(temporary)
        except struct.error as error:
            raise TrainingError(
                f"{self.path / name} cannot be written: it is a zip file, which holds dates of "
                "1980 to 2107. Set the clock, and run the same command again."
            ) from error


def drop_events_after(folder: str | os.PathLike, step: int) -> None:
    """Drops the TensorBoard events after `step`, which the resumed run writes once more.

    Drops also half an event that a killed process left. The folder need not exist.
    """
    folder = pathlib.Path(folder)
    remove_unfinished(folder)
    for file in filter(lambda each: EVENTS.fullmatch(each.name), folder.glob("*")):
        records, damaged = [], False
        try:
            for record in tf.data.TFRecordDataset(str(file)):
                records.append(record.numpy())
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
            damaged = True
            # Half an event at the end is a killed process's, and no loss.
            if "corrupted" in str(error):
                message = "%s is damaged: TensorBoard loses what follows its first %d events. "
                logger.warning(f"{message}metrics.csv has the same numbers.", file, len(records))
        kept = [record for record in records if tf.compat.v1.Event.FromString(record).step <= step]
        if damaged or len(kept) < len(records):
            with atomic_file(file) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
                for record in kept:
                    writer.write(record)
