"""Data sets, opened once: `open` returns a split, which gives what trains and what evaluates.

From a name to batches: `opened_dataset` looks it up in `known_datasets`, finds it by `tfds_folder`
or `photo_sets`, cuts it by `splits`, and holds what a run takes of it; `tf_data_batches` puts it
into the order of `order`, reads it by `records` and prepares it by `preprocessing`.
"""

from .opened_dataset import (
    Dataset,
    Split,
    load_dataset,
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
