"""Predictions of many images as Parquet files: each is whole, and a stopped command goes on."""

import contextlib
import json
from collections.abc import Iterator

from keras_vit.errors import damage_named
from keras_vit.files.hidden_folder import remove_unfinished

from ..errors import UsageError
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
