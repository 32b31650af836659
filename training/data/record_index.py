"""The index of a prepared data set: where in its files each record begins, kept beside them."""

import concurrent.futures
import os

from training.data import dataset_lookup, tfrecords
from training.errors import UsageError
from training.io.track import track

_THREADS = 4


def write_index(name: str, data_dir: str | os.PathLike | None = None) -> int:
    """Writes the index of every file of a data set, and returns how many files these are.

    Args:
        name: of a data set, see `training.data.dataset_lookup`.
        data_dir: folder of prepared data sets, which must be writable; empty or None is the default
            of TFDS.

    Raises:
        NotPreparedError: if the data set is not there.
        UsageError: if it has no TFRecord files.
        ValueError: if a file is cut short.
    """
    import tensorflow_datasets as tfds

    spec = dataset_lookup.get(name, data_dir)
    if spec.folder:
        raise UsageError(f"Expected a prepared data set. Received: {name}, which needs no index.")
    found = dataset_lookup.locate(spec, data_dir)
    if found.file_format != "tfrecord":
        raise UsageError(
            f"Expected TFRecord files. {found.directory} holds {found.file_format}, which needs no "
            "index."
        )
    builder = tfds.builder_from_directory(found.directory)
    paths = [str(path) for info in builder.info.splits.values() for path in info.filepaths]
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        futures = [pool.submit(tfrecords.write_index, path) for path in paths]
        for future in track(futures, f"indexing {name}"):
            future.result()
    return len(paths)
