"""The published formats of checkpoints, a file each, in the order in which they are tried."""

from keras_vit.checkpoints.formats.bit_npz import BiTLayout
from keras_vit.checkpoints.formats.hugging_face import HuggingFaceLayout
from keras_vit.checkpoints.formats.hugging_face_dinov2 import HuggingFaceDINOv2Layout
from keras_vit.checkpoints.formats.hugging_face_siglip import HuggingFaceSigLIPLayout
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
