"""Layers respelled with operations that delegates of phones and browsers compute right."""

import keras
from keras import ops

from keras_vit.layers import MAPHead, RootPooling
from keras_vit.models.find_and_replace_layers import with_replaced_layers
from keras_vit.type_hints import Tensor


def for_delegates(model: keras.Model) -> keras.Model:
    """Returns a model that computes the same, on the same weights, up to rounding.

    Args:
        model: a functional model of one input and one output.
    """
    return with_replaced_layers(model, {MAPHead: map_head, RootPooling: root_pooling})


def map_head(layer: MAPHead, tokens: Tensor) -> Tensor:
    """Attention pooling whose query, a constant, is multiplied into the keys' weights.

    Delegates do not take a constant left operand, nor a slice that drops an axis, and OpenVINO no
    int8 constant with a matrix for each head. The softmax cancels the keys' bias.
    """
    length, channels = tokens.shape[1:]
    query = layer.project(layer.query, layer.probe) * layer.scale
    keys = ops.reshape(layer.key.kernel, (channels, layer.num_heads, layer.head_size))
    kernel = ops.sum(keys * ops.reshape(query, keys.shape[1:]), axis=-1)
    logits = ops.matmul(ops.reshape(tokens, (-1, channels)), kernel)
    logits = ops.transpose(ops.reshape(logits, (-1, length, layer.num_heads)), (0, 2, 1))
    logits = ops.reshape(logits, (-1, layer.num_heads, 1, length))
    x = layer.weighted_values(ops.softmax(logits, axis=-1), tokens)
    return ops.reshape(x + layer.mlp(layer.norm(x)), (-1, channels))


def root_pooling(layer: RootPooling, inputs: Tensor) -> Tensor:
    """The maximum of windows over cells that are joined to the border, not padded.

    A delegate mistakes padding, and cells of zeros, for the pooling's own padding, which is never
    the maximum, and has no padding that repeats the border. The larger of a border cell and zero
    gives the same maximum as a zero beside that cell. The cells after the last are read only where
    the number of cells is odd.
    """
    x = _bordered(layer.padding, inputs, inputs[:, :1], inputs[:, -1:], axis=1)
    x = _bordered(layer.padding, x, x[:, :, :1], x[:, :, -1:], axis=2)
    return ops.max_pool(x, 3, 2, "valid", data_format="channels_last")


def _bordered(padding, x, first, last, axis):
    if padding == "zero":
        first, last = ops.relu(first), ops.relu(last)
    return ops.concatenate([first, x, last] if x.shape[axis] % 2 else [first, x], axis=axis)
