"""Published checkpoints: finds, downloads, reads, compares with a model, and writes them."""
# ruff: noqa: F401 (the names are imported for type checkers)

from typing import TYPE_CHECKING

from keras_vit.lazy_imports import import_when_used

if TYPE_CHECKING:
    from keras_vit.checkpoints.download import cache_directory, find_checkpoint
    from keras_vit.checkpoints.errors import CheckpointError, DownloadError
    from keras_vit.checkpoints.load import load_checkpoint, load_weights
    from keras_vit.checkpoints.npz_layouts import BiTLayout, Layout
    from keras_vit.checkpoints.published_weights import list_weights, published
    from keras_vit.checkpoints.save import save_checkpoint

__getattr__ = import_when_used(
    "keras_vit.checkpoints",
    {
        "BiTLayout": ".npz_layouts",
        "CheckpointError": ".errors",
        "DownloadError": ".errors",
        "Layout": ".npz_layouts",
        "cache_directory": ".download",
        "find_checkpoint": ".download",
        "list_weights": ".published_weights",
        "load_checkpoint": ".load",
        "load_weights": ".load",
        "published": ".published_weights",
        "save_checkpoint": ".save",
    },
)
