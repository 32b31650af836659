"""Predictions of many images as Parquet files: each is whole, and a stopped command goes on.

On Ray Data a pool of workers, each with a model, writes them on many machines.
"""

import contextlib
import dataclasses
import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_vit.errors import damage_named
from keras_vit.files.hidden_folder import remove_unfinished

from ..errors import TrainingError, UsageError, first_line
from ..io.atomic import atomic_file, write_text
from ..io.locks import lock
from ..io.paths import any_path, attempt, is_remote
from .predictor import Predictor

# Readers of a folder of Parquet files pass over such names.
MANIFEST = "_predictions.json"


def write_shard(predictor: Predictor, directory: str, name: str) -> int:
    """Writes one of `predictor.shards` whole, and returns how many of its images cannot be read.

    The directory may be in a store.

    Raises `TrainingError` if the images or the directory do not answer, or photos were replaced
    since they were listed; `ValueError` if there is not a name for each class; `OSError` if the
    directory cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet

    columns = predictor.task.answer_columns if predictor.answers else {}
    schema = pa.schema(
        {
            "id": pa.string(),
            **{key: pa.list_(pa.type_for_alias(kind)) for key, kind in columns.items()},
            "representation": pa.list_(pa.float32()),
            "error": pa.string(),
        }
    )
    rows = [
        {**vars(row), **(row.answer or {})} for row in predictor.predict(predictor.shards[name])
    ]
    predictor.require_unchanged(predictor.shards[name])
    with atomic_file(any_path(directory) / name) as temporary:
        pa.parquet.write_table(pa.Table.from_pylist(rows, schema), temporary)
    return sum(row["error"] is not None for row in rows)


@contextlib.contextmanager
def missing_shards(predictor: Predictor, directory: str) -> Iterator[list[str]]:
    """Locks the directory of the shards and yields the names of the shards that are not in it yet.

    Raises `UsageError` if another process works in it, or it holds other predictions, or unknown
    ones.
    """
    folder = any_path(directory)
    with lock(folder):
        if not is_remote(folder):
            remove_unfinished(folder)
        file, wanted = folder / MANIFEST, predictor.manifest
        there = attempt(
            lambda: {each.name for each in folder.iterdir()}, f"{folder} cannot be read"
        )
        left = [name for name in predictor.shards if name not in there]
        if MANIFEST not in there:
            if len(left) < len(predictor.shards):
                raise UsageError(
                    f"Expected {MANIFEST} beside the predictions in {folder}, which says what they "
                    "are of. It is gone. Name another directory."
                )
            write_text(file, json.dumps(wanted, indent=2, sort_keys=True) + "\n")
        text = attempt(file.read_text, f"{file} cannot be read")
        with damage_named(f"{file} is damaged", "Name another directory."):
            before = dict(json.loads(text))
        differing = sorted(key for key in wanted if before.get(key) != wanted[key])
        if differing:
            raise UsageError(
                f"{folder} holds predictions with another {', '.join(differing)}. Name another "
                "directory, or go on with the options and images of before."
            )
        yield left
        if not is_remote(folder):
            # Left by workers that died.
            remove_unfinished(folder)


def write_on_cluster(
    predictor: Predictor,
    directory: str,
    shards: Sequence[str],
    address: str,
    *,
    workers: int | None = None,
    num_gpus: float = 0,
) -> Iterator[int]:
    """Writes shards on a Ray cluster, and yields how many images of each cannot be read.

    A shard whose machine dies is written by another.

    Args:
        predictor: of this process; all machines see its paths.
        directory: of the shards, which they see as well.
        shards: to be written.
        address: of the cluster, or "local" to start one on this machine.
        workers: at most so many at once; None is one for each machine, or for each `num_gpus`.
        num_gpus: GPUs of each worker; 0 computes on processors.

    Raises `UsageError` if Ray is not installed, does not answer, or has no such GPUs, or a machine
    sees another model or no photos; `TrainingError` if the cluster failed, or the images or the
    directory do not answer.
    """
    if not shards:
        return
    ray = _connected(address)
    try:
        pool = workers or _workers(ray, num_gpus)
        names = [{"name": name} for name in shards]
        done = ray.data.from_items(names, override_num_blocks=len(names)).map(
            Worker,
            fn_constructor_args=(predictor.arguments, predictor.manifest, directory, os.getcwd()),
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=pool, initial_size=pool),
            **({"num_gpus": num_gpus} if num_gpus else {"num_cpus": 1}),
        )
        for row in done.iter_rows():
            if row["error"]:
                raise (UsageError if row["bad_use"] else TrainingError)(row["error"])
            yield row["unreadable"]
    except ray.exceptions.RayError as error:
        raise TrainingError(
            f"The cluster failed: {first_line(error)}. Run the same command again: it goes on."
        ) from error
    finally:
        ray.shutdown()


def _connected(address):
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UsageError(
            "Expected Ray for --cluster. Install it: pip install 'keras-vit-16x16[ray]'"
        ) from error
    environment = {
        "KERAS_BACKEND": keras.backend.backend(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Workers may share a GPU.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    try:
        # Ray itself would wait for minutes.
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if port.isdigit():
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(
            address=address,
            runtime_env={"env_vars": environment},
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({"include_dashboard": False} if address == "local" else {}),
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Expected the address of a Ray cluster, or local. Nothing answers at {address}: "
            f"{first_line(error)}"
        ) from error
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray


def _workers(ray, num_gpus):
    if not num_gpus:
        return sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
    gpus = ray.cluster_resources().get("GPU", 0)
    if gpus < num_gpus:
        raise UsageError(f"Expected {num_gpus:g} GPUs in the cluster. It has {gpus:g}.")
    return int(gpus // num_gpus)


@dataclasses.dataclass
class Worker:
    """Writes shards; opens the model with the first one.

    It returns errors instead of raising them: Ray would print a page of text around each.
    """

    arguments: dict[str, Any]  # of the predictor
    manifest: Mapping[str, Any]  # of the process that began it; the worker's own must be the same
    directory: str  # of the shards
    folder: str  # that relative paths start from
    _predictor: Predictor | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns how many images of the shard `name` cannot be read, or why it is not written."""
        unreadable, text, bad_use = 0, "", False
        try:
            self._predictor = self._predictor or self._open()
            # A worker that died may have written it.
            if not (any_path(self.directory) / row["name"]).exists():
                unreadable = write_shard(self._predictor, self.directory, row["name"])
        except (TrainingError, ValueError, OSError, tf.errors.OpError) as error:
            text = f"{first_line(error, 500)} (worker on {socket.gethostname()})"
            bad_use = isinstance(error, (UsageError, ValueError, FileNotFoundError))
        return {"unreadable": unreadable, "error": text, "bad_use": bad_use}

    def _open(self):
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        (photo, *_) = self.arguments["photos"] or ["."]
        if not (is_remote(photo) or os.path.exists(photo)):
            raise UsageError(f"Expected a folder that all machines see. There is no {photo} here.")
        predictor = Predictor(**self.arguments)
        found = predictor.manifest
        differing = sorted(key for key in found if found[key] != self.manifest[key])
        if differing:
            raise UsageError(f"Expected what all machines see to be alike: {differing} are not.")
        return predictor
