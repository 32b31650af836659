"""Published checkpoints: finds, downloads, reads, compares with a model, and writes them."""

from typing import TYPE_CHECKING

from keras_vit.lazy_imports import import_when_used

if TYPE_CHECKING:
    from keras_vit.checkpoints.download import DownloadError, cache_directory, find_checkpoint
    from keras_vit.checkpoints.load_into_model import load_checkpoint, load_weights
    from keras_vit.checkpoints.npz_and_safetensors import CheckpointError
    from keras_vit.checkpoints.npz_file_layouts import BiTLayout, Layout
    from keras_vit.checkpoints.published_weights import list_weights, published
    from keras_vit.checkpoints.save_npz import save_checkpoint

__getattr__ = import_when_used(
    "keras_vit.checkpoints",
    {
        "BiTLayout": ".npz_file_layouts",
        "CheckpointError": ".npz_and_safetensors",
        "DownloadError": ".download",
        "Layout": ".npz_file_layouts",
        "cache_directory": ".download",
        "find_checkpoint": ".download",
        "list_weights": ".published_weights",
        "load_checkpoint": ".load_into_model",
        "load_weights": ".load_into_model",
        "published": ".published_weights",
        "save_checkpoint": ".save_npz",
    },
)

__all__ = [
    "BiTLayout",
    "CheckpointError",
    "DownloadError",
    "Layout",
    "cache_directory",
    "find_checkpoint",
    "list_weights",
    "load_checkpoint",
    "load_weights",
    "published",
    "save_checkpoint",
]
