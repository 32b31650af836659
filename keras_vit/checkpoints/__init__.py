"""Published checkpoints: read, written and compared with a model."""

from keras_vit.checkpoints.bit_npz import BiTLayout
from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.load import load_checkpoint
from keras_vit.checkpoints.official_npz import Layout
from keras_vit.checkpoints.save import save_checkpoint

__all__ = ["BiTLayout", "CheckpointError", "Layout", "load_checkpoint", "save_checkpoint"]
