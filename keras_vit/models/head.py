"""The head of every model: from pooled features to logits."""

import keras

from keras_vit.models.layers_by_name import LayersByName
from keras_vit.typing import Tensor


def classification_head(
    features: Tensor, layer: LayersByName, num_classes: int | None, bias: float
) -> dict[str, Tensor]:
    """Applies the linear classifier, in float32 under every precision policy.

    Args:
        features: (batch, ..., channels) Keras tensor.
        layer: makes the layers.
        num_classes: int, or None for no classifier.
        bias: float, its initial bias; its kernel is zero.

    Returns:
        The endpoints "representation", the features in float32, and "logits", if any.
    """
    x = layer("representation", keras.layers.Identity, dtype="float32")(features)
    if num_classes is None:
        return {"representation": x}
    head = layer(
        "head",
        keras.layers.Dense,
        units=num_classes,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(bias),
        dtype="float32",
    )
    return {"representation": x, "logits": head(x)}
