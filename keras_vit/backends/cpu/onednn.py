"""A model in the spelling that TensorFlow's graph optimizer gives to oneDNN."""

import keras
import tensorflow as tf

from keras_vit.backends.cpu.frozen_graph import FrozenGraph
from keras_vit.backends.gelu import GELU_FLAVORS
from keras_vit.layers import (
    AxialEncoderBlock,
    EncoderBlock,
    LayerNormalization,
)
from keras_vit.models.find_and_replace_layers import with_replaced_layers


def frozen_graph_of(model: keras.Model, shape: tuple[int | None, ...]) -> FrozenGraph:
    """Returns a functional model of Keras on TensorFlow as a graph.

    It goes from float32 images of `shape`, (batch, height, width, channels), to float32 outputs.
    """
    weights = [(variable, tf.convert_to_tensor(variable.value)) for variable in model.variables]
    fused = _Fused({id(v): value for v, value in weights})
    graph = with_replaced_layers(model, fused.layers, shape)

    def infer(images):
        mapping = [(variable, tf.identity(value)) for variable, value in weights]
        with keras.StatelessScope(state_mapping=mapping):
            return tf.cast(graph(images, training=False), tf.float32)

    return FrozenGraph.of(infer, shape)


class _Fused:
    """Layers of a Transformer for inference. oneDNN computes in float32 inside, whatever the dtype.

    Args:
        weights: dict of a variable's id to its value, an eager tensor.
    """

    def __init__(self, weights):
        self.weights = weights
        self.layers = {
            LayerNormalization: self.layer_normalization,
            EncoderBlock: self.encoder_block,
            AxialEncoderBlock: self.axial_encoder_block,
        }

    def layer_normalization(self, layer, inputs):
        """Batch normalization of one example, of which every token is a channel."""
        if inputs.dtype != layer.compute_dtype or layer.compute_dtype == "float64":
            return layer(inputs)
        gamma, beta = (tf.cast(weight, inputs.dtype) for weight in (layer.gamma, layer.beta))
        with tf.init_scope():
            # A weight, of which the optimizer knows neither the value nor that it is the same for
            # every layer. It recognizes a layer normalization by operations of its own that would
            # otherwise have been computed, or shared with another one, by then.
            one = tf.identity(1)
        channels = inputs.shape[-1]
        tokens = one * tf.size(inputs) // channels
        normal, *_ = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(inputs, tf.stack([1, tokens, channels, 1])),
            scale=tf.fill([tokens], 1.0),
            offset=tf.fill([tokens], 0.0),
            mean=tf.constant([]),
            variance=tf.constant([]),
            epsilon=layer.epsilon,
            data_format="NCHW",
            is_training=True,
        )
        return tf.reshape(normal, tf.shape(inputs)) * gamma + beta

    def encoder_block(self, block, tokens, context=None):
        """Equations 2 and 3 on the rows of a matrix.

        The matrix product that ends a branch also adds the branch to its residual.
        """
        rows = tf.reshape(tokens, (-1, tokens.shape[-1]))
        normal = self.layer_normalization(
            block.attention_norm, tokens if context is None else context
        )
        inputs = (normal,) if context is None else (normal[:, : tokens.shape[1]], normal)
        rows += self.attention(block.attention, rows, *inputs)
        hidden = block.mlp.hidden_dense(self.layer_normalization(block.mlp_norm, rows))
        rows += block.mlp.output_dense(GELU_FLAVORS[block.gelu](hidden))
        return tf.reshape(rows, tf.shape(tokens))

    def axial_encoder_block(self, block, tokens):
        return block.along_axes(
            tokens,
            lambda lines: self.encoder_block(block.row, lines),
            lambda lines: self.encoder_block(block.column, lines),
        )

    def attention(self, layer, residual, tokens, context=None):
        """Equations 5 to 8 with one product for queries, keys and values, as rows.

        They get the shape of their residual, so that the optimizer sees that the two are equal.
        """
        channels, dtype = tokens.shape[-1], tokens.dtype
        projections = [layer.query, layer.key, layer.value]
        if layer.relative_positions or any(
            dense.quantization_mode or dense.lora_enabled for dense in projections
        ):  # More than products with kernels.
            return tf.reshape(layer(tokens, context), tf.shape(residual))

        def project(tokens, layers, scale=1.0):
            """Returns one (batch, heads, tokens, head_size) a layer, the first of them scaled."""
            with tf.init_scope():
                kernels = [self.weights[id(dense.kernel)] for dense in layers]
                biases = [self.weights[id(dense.bias)] for dense in layers]
                for weights in (kernels, biases):
                    weights[0] = weights[0] * tf.cast(scale, weights[0].dtype)
                kernel = tf.cast(tf.concat(kernels, axis=1), dtype)
                bias = tf.cast(tf.concat(biases, axis=0), dtype)
            rows = tf.matmul(tf.reshape(tokens, (-1, channels)), kernel)
            rows = tf.nn.bias_add(rows, bias)
            shape = (-1, tokens.shape[1], len(layers), layer.num_heads, layer.head_size)
            return tf.unstack(tf.transpose(tf.reshape(rows, shape), (2, 0, 3, 1, 4)))

        if context is None:
            queries, keys, values = project(tokens, projections, layer.scale)
        else:
            (queries,) = project(tokens, projections[:1], layer.scale)
            keys, values = project(context, projections[1:])
        probabilities = tf.nn.softmax(tf.matmul(queries, keys, transpose_b=True))
        heads = tf.transpose(tf.matmul(probabilities, values), (0, 2, 1, 3))
        return layer.out(tf.reshape(heads, tf.shape(residual)))
