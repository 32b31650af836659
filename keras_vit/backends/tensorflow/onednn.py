"""TensorFlow's spelling of a Transformer's layers that its graph optimiser gives to oneDNN."""

import math

import keras
import tensorflow as tf

from keras_vit.layers.kernels import substituted


def function_of(model, shape, constants):
    """Returns a model as a function of images, float32 of one shape, to float32 outputs.

    Args:
        model: a Keras model on the TensorFlow backend.
        shape: (batch, height, width, channels), ints.
        constants: bool, whether the weights become constants of the function.
    """
    signature = [tf.TensorSpec(shape, tf.float32), tf.TensorSpec((None,), tf.int32)]
    weights = [(variable, tf.convert_to_tensor(variable.value)) for variable in model.variables]
    uses = 0
    embed = _constant if constants else tf.identity

    @tf.function(input_signature=signature, autograph=False)
    def infer(images, ones):
        nonlocal uses
        mapping = [(variable, embed(value)) for variable, value in weights]
        kernels = _Kernels(ones, {id(v): value for v, value in weights}, embed)
        with substituted(kernels), keras.StatelessScope(state_mapping=mapping):
            outputs = tf.cast(model(images, training=False), tf.float32)
        uses = kernels.count
        return outputs

    function = infer.get_concrete_function()
    ones = tf.ones(uses, tf.int32)
    return lambda images: function(images, ones)


def _constant(value):
    return tf.constant(value.numpy())


class _Kernels:
    """See `keras_vit.layers.kernels`. oneDNN computes in float32 inside, whatever the dtype.

    Args:
        ones: ones, int32 (n,), of which the optimiser knows neither the value nor that they are
            equal. It recognises a layer normalisation by operations of its own that would
            otherwise have been computed, or shared with another one, by then.
        weights: dict of a variable's id to its value, an eager tensor.
        embed: function that brings an eager tensor into the graph.
    """

    def __init__(self, ones, weights, embed):
        self.ones = ones
        self.count = 0
        self.weights = weights
        self.embed = embed

    def layer_normalization(self, inputs, gamma, beta, epsilon):
        """Batch normalisation of one example, of which every token is a channel."""
        gamma, beta = (tf.cast(weight, inputs.dtype) for weight in (gamma, beta))
        *leading, channels = inputs.shape
        tokens = self.ones[self.count] * math.prod(leading)
        self.count += 1
        normal, *_ = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(inputs, tf.stack([1, tokens, channels, 1])),
            scale=tf.fill([tokens], 1.0),
            offset=tf.fill([tokens], 0.0),
            mean=tf.constant([]),
            variance=tf.constant([]),
            epsilon=epsilon,
            data_format="NCHW",
            is_training=True,
        )
        return tf.reshape(normal, inputs.shape) * gamma + beta

    def attention(self, layer, tokens, first_token_only):
        """The heads side by side, as rows: (batch * queries, channels)."""
        channels, dtype = tokens.shape[-1], tokens.dtype

        def project(tokens, names, scale=1.0):
            """Returns one (batch, heads, tokens, channels of a head) per name, the first scaled."""
            layers = [getattr(layer, name) for name in names]
            with tf.init_scope():
                kernels = [self.weights[id(dense.kernel)] for dense in layers]
                biases = [self.weights[id(dense.bias)] for dense in layers]
                for weights in (kernels, biases):
                    weights[0] = weights[0] * tf.cast(scale, weights[0].dtype)
                kernel = tf.cast(tf.concat(kernels, axis=1), dtype)
                bias = tf.cast(tf.concat(biases, axis=0), dtype)
            rows = tf.matmul(tf.reshape(tokens, (-1, channels)), self.embed(kernel))
            rows = tf.nn.bias_add(rows, self.embed(bias))
            shape = (-1, tokens.shape[1], len(names), layer.num_heads, layer.head_size)
            return tf.unstack(tf.transpose(tf.reshape(rows, shape), (2, 0, 3, 1, 4)))

        if first_token_only:
            (queries,) = project(tokens[:, :1], ["query"], layer.scale)
            keys, values = project(tokens, ["key", "value"])
        else:
            queries, keys, values = project(tokens, ["query", "key", "value"], layer.scale)
        probabilities = tf.nn.softmax(tf.matmul(queries, keys, transpose_b=True))
        heads = tf.transpose(tf.matmul(probabilities, values), (0, 2, 1, 3))
        return tf.reshape(heads, (-1, channels))
