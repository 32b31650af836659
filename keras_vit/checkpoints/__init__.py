"""Published checkpoints: finds, downloads, reads, compares with a model, and writes them."""

from keras_vit.checkpoints.download import DownloadError, cache_directory
from keras_vit.checkpoints.list_of_published_weights import find_checkpoint, list_weights, published
from keras_vit.checkpoints.load_into_model import load_checkpoint, load_weights
from keras_vit.checkpoints.npz_and_safetensors import CheckpointError
from keras_vit.checkpoints.npz_file_layouts import BiTLayout, Layout
from keras_vit.checkpoints.save_npz import save_checkpoint

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
