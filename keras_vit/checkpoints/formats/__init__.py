"""The published formats of checkpoints in the order in which they are tried."""

from keras_vit.checkpoints.formats.bit_npz import BiTLayout
from keras_vit.checkpoints.formats.hugging_face import (
    HuggingFaceDINOv2Layout,
    HuggingFaceLayout,
    HuggingFaceSigLIPLayout,
)
from keras_vit.checkpoints.formats.official_npz import Layout
from keras_vit.checkpoints.formats.timm import TimmLayout

FORMATS = (
    Layout,
    BiTLayout,
    HuggingFaceDINOv2Layout,
    HuggingFaceSigLIPLayout,
    HuggingFaceLayout,
    TimmLayout,
)
