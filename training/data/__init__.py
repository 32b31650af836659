"""Data sets, opened once: `open` returns a split.

From a name to batches: `opened_dataset` looks it up in `sets.known_datasets`, finds it by
`sets.tfds_folder` or `sets.photo_sets` and cuts it by `sets.splits`; `tf_data_batches` puts it into
the order of `order`, reads it by `records` and prepares it by `preprocessing`; `run_data` does that
for a config.
"""

from keras_vit.lazy_imports import import_when_used

from .opened_dataset import (
    Dataset,
    Split,
    open,
    open_data_of_run,
    open_dataset,
    open_files,
)

__all__ = [
    "Dataset",
    "Split",
    "load_dataset",
    "open",
    "open_data_of_run",
    "open_dataset",
    "open_files",
]

__getattr__ = import_when_used("keras_vit.training.data", {"load_dataset": ".tf_data_batches"})
