"""The paper's two classification losses, for one-hot, multi-hot or soft labels.

Labels are `(batch, classes)` floats, logits `(batch, classes)`; both losses are computed in
float32 whatever the precision of the logits, and averaged over the batch.
"""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor


@keras.saving.register_keras_serializable("keras_vit")
class SoftmaxCrossentropy(keras.losses.Loss):
    """Softmax cross-entropy, `-sum_c y_c log softmax(z)_c`: fine-tuning."""

    def __init__(self, name: str = "softmax_crossentropy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels, logits = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        return -ops.sum(labels * ops.log_softmax(logits, axis=-1), axis=-1)


@keras.saving.register_keras_serializable("keras_vit")
class SigmoidCrossentropy(keras.losses.Loss):
    """Sigmoid cross-entropy summed over classes: pre-training.

    `-sum_c [y_c log sigmoid(z_c) + (1 - y_c) log(1 - sigmoid(z_c))]`, so that the value grows
    with the number of classes; start such a head from a negative bias.
    """

    def __init__(self, name: str = "sigmoid_crossentropy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels, logits = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        return -ops.sum(
            labels * ops.log_sigmoid(logits) + (1.0 - labels) * ops.log_sigmoid(-logits), axis=-1
        )


@keras.saving.register_keras_serializable("keras_vit")
class MeanOutput(keras.losses.Loss):
    """The mean of what the model returns for an image: its losses in self-supervised training."""

    def __init__(self, name: str = "mean_output", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return ops.mean(ops.cast(y_pred, "float32"), axis=-1)


LOSSES = {"softmax": SoftmaxCrossentropy, "sigmoid": SigmoidCrossentropy}


def build_loss(name: str) -> keras.losses.Loss:
    """Returns the loss called `name`, a key of `LOSSES`, as a `keras.losses.Loss`.

    Raises:
        ValueError: if there is no loss of this name.
    """
    if name not in LOSSES:
        raise ValueError(f"Loss: expected one of {', '.join(LOSSES)}. Received: {name!r}.")
    return LOSSES[name]()
