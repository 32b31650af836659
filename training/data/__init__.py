"""Data sets, opened once: `open` returns a split, which gives what trains and what evaluates."""

from keras_vit.training.data.opened_dataset import (
    Dataset,
    Split,
    load_dataset,
    open,
    open_dataset,
    open_files,
)

__all__ = ["Dataset", "Split", "load_dataset", "open", "open_dataset", "open_files"]
