"""The variables of a model under their published names.

The names are those of the original's files: "Transformer/encoderblock_0/…" for
the Vision Transformer, "resnet/block1/unit01/…" for BiT. Those of Axial-ViT, the position
embeddings of appendix D.3, register tokens ("reg"), gated MLPs and a Segmenter's decoder are ours.
"""

import re
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_vit.layers.attention import MultiHeadAttention
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.models.inner_layers import inner_layers
from keras_vit.models.resnets import ResNetV2
from keras_vit.models.segmenter import Segmenter
from keras_vit.models.vision_transformer import VisionTransformer

POSITION_TABLE = "Transformer/posembed_input/pos_embedding"
BLOCK = re.compile(r"Transformer/encoderblock_(\d+)/(.+)")
# Before the names of a Segmenter's decoder.
DECODER = "Decoder/"

# The attributes of layers that are weights.
_ATTRIBUTES = ("token", "learned", "probe", "embedding", "columns", "rows", "first")
_ATTRIBUTES += ("kernel", "bias", "gamma", "beta", "relative_embedding")
_ATTRIBUTES += ("patch_matrix", "class_matrix")

# From the path of a weight in a model to its published name: replaced one after the other.
_RESIDUAL_UNIT = (r"^(block\d+)_(unit\d+)/", r"\1/\2/")
_OF_VISION_TRANSFORMER = (
    ("^class_embeddings/learned", f"{DECODER}classes"),
    (r"^decoder_block_0*(\d+)/", rf"{DECODER}Transformer/encoderblock_\1/"),
    (r"^(decoder_|mask_products/)", DECODER),
    ("^mask_norm/", f"{DECODER}mask_norm/"),
    ("^embedding/projection/", "embedding/"),
    ("^class_token/token", "cls"),
    ("^distillation_token/token", "dist"),
    ("^head_distillation/", "head/distillation/"),
    ("^register_tokens/learned", "reg"),
    (r"^position_embedding_(\d+)/", r"encoder_block_\1/posembed_input/"),
    ("^position_embedding/", "Transformer/posembed_input/"),
    ("posembed_input/embedding", "posembed_input/pos_embedding"),
    ("posembed_input/first", "posembed_input/cls"),
    (r"^encoder_block_0*(\d+)/", r"Transformer/encoderblock_\1/"),
    ("/attention_norm/", "/LayerNorm_0/"),
    ("/attention/", "/MultiHeadDotProductAttention_1/"),
    ("/mlp_norm/", "/LayerNorm_2/"),
    ("^encoder_norm/", "Transformer/encoder_norm/"),
    ("^pool/(query|key|value|out)/", r"pool/MultiHeadDotProductAttention_0/\1/"),
    ("^pool/norm/", "pool/LayerNorm_0/"),
    ("^pool/mlp/", "pool/MlpBlock_0/"),
    ("^pool/", "MAPHead_0/"),
    ("/mlp/", "/MlpBlock_3/"),
    ("/hidden_dense/", "/Dense_0/"),
    ("/output_dense/", "/Dense_1/"),
    ("/gate_dense/", "/Gate/"),
    ("/up_dense/", "/Up/"),
    ("/down_dense/", "/Down/"),
    _RESIDUAL_UNIT,
    ("/gamma$", "/scale"),
    ("/beta$", "/bias"),
)
_OF_RESNET_V2 = (
    ("^conv_root/", "root_block/conv/"),
    _RESIDUAL_UNIT,
    ("/(conv|gn)1/", r"/a/\1/"),
    ("/(conv|gn)2/", r"/b/\1/"),
    ("/(conv|gn)3/", r"/c/\1/"),
    ("/conv_proj/", "/a/proj/conv/"),
    ("/conv/", "/standardized_conv2d/"),
    ("/gn/", "/group_norm/"),
    ("^head/", "head/conv2d/"),
    ("^", "resnet/"),
)


@dataclass(frozen=True)
class Weight:
    """One variable of a model and its array in the original's files."""

    name: str  # the published one
    variable: keras.Variable
    shape: tuple[int, ...]  # the published one, which may split or join the variable's axes
    # Position embeddings: the layer if in raster order, 0 if of rows alone, 1 if of columns alone.
    positions: PositionEmbedding | int | None = None

    def value(self) -> np.ndarray:
        """Returns the variable as a float32 array of the published shape."""
        value = np.asarray(ops.convert_to_numpy(self.variable), np.float32)
        return np.reshape(value, self.shape)


def weights_of(model: keras.Model) -> list[Weight]:
    """Returns every variable under its published name; raises ValueError for another class."""
    if isinstance(model, VisionTransformer | Segmenter):
        names = _OF_VISION_TRANSFORMER
    elif isinstance(model, ResNetV2):
        names = _OF_RESNET_V2
    else:
        raise ValueError(
            "Checkpoints are read and written for keras_vit.VisionTransformer, keras_vit.ResNetV2 "
            f"and keras_vit.Segmenter. Received: {type(model).__name__}. Use `model.save` and "
            "`keras.saving.load_model` for other models."
        )
    return list(_weights(model, names))


def _weights(model, names):
    for path, layer, outer in inner_layers(model):
        for attribute in _ATTRIBUTES:
            variable = getattr(layer, attribute, None)
            if variable is not None:
                name = f"{path}/{attribute}"
                for pattern, published in names:
                    name = re.sub(pattern, published, name)
                shape = _shape(name, tuple(variable.shape), layer, outer)
                line = {"rows": 0, "columns": 1}.get(name.rpartition("posembed_input/")[2])
                positions = layer if name.endswith("/pos_embedding") else line
                yield Weight(name, variable, shape, positions)


def _shape(name, shape, layer, outer):
    """Returns the published shape: heads have an axis of their own, BiT's head is a convolution."""
    if isinstance(outer, MultiHeadAttention):
        heads = (outer.num_heads, outer.head_size)
        if layer in (outer.query, outer.key, outer.value):
            return (*shape[:-1], *heads)
        if layer is outer.out and len(shape) == 2:
            return (*heads, *shape[1:])
    return (1, 1, *shape) if name == "resnet/head/conv2d/kernel" else shape
