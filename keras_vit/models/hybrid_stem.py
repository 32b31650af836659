"""The ResNet in front of a hybrid's Transformer (section 3.1, "Hybrid Architecture")."""

import keras

from keras_vit.layers import GroupNormalization, HybridUnit, StandardizedConv2D


def hybrid_stem(images, num_layers, width_factor, layer):
    """Applies the ResNet to images.

    Args:
        images: (batch, height, width, 3) Keras tensor.
        num_layers: ints, the residual units of each stage; empty for the root alone.
        width_factor: number, multiplies the channels.
        layer: function of (name, class, **arguments) that makes a layer, or
            returns the one of that name made before.

    Returns:
        The feature map, a Keras tensor; its stride is 4 for the root and the
        first stage, doubled by each further stage.
    """
    width = int(64 * width_factor)
    x = layer("conv_root", StandardizedConv2D, filters=width, kernel_size=7, strides=2)(images)
    x = layer("gn_root", GroupNormalization)(x)
    x = layer("relu_root", keras.layers.Activation, activation="relu")(x)
    x = layer("pool_root", keras.layers.MaxPooling2D, pool_size=3, strides=2, padding="same")(x)
    for stage, units in enumerate(num_layers):
        for unit in range(units):
            strides = 2 if stage > 0 and unit == 0 else 1
            name = f"block{stage + 1}_unit{unit + 1}"
            x = layer(name, HybridUnit, filters=width * 2**stage, strides=strides)(x)
    return x
