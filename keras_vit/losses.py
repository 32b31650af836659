"""The paper's two classification losses, for one-hot, multi-hot or soft labels.

Labels are `(batch, classes)` floats, logits `(batch, classes)`; both losses are computed in
float32 whatever the precision of the logits, and averaged over the batch.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor


def _softmax(labels, logits):
    """Softmax cross-entropy, `-sum_c y_c log softmax(z)_c`: fine-tuning."""
    return -ops.sum(labels * ops.log_softmax(logits, axis=-1), axis=-1)


def _sigmoid(labels, logits):
    """Sigmoid cross-entropy summed over classes: pre-training.

    `-sum_c [y_c log sigmoid(z_c) + (1 - y_c) log(1 - sigmoid(z_c))]`, so that the value grows
    with the number of classes; start such a head from a negative bias.
    """
    return -ops.sum(
        labels * ops.log_sigmoid(logits) + (1.0 - labels) * ops.log_sigmoid(-logits), axis=-1
    )


LOSSES = {"softmax": _softmax, "sigmoid": _sigmoid}


@keras.saving.register_keras_serializable("keras_vit")
class Crossentropy(keras.losses.Loss):
    """Softmax or sigmoid cross-entropy, with label smoothing and weights of the classes.

    Args:
        kind: `"softmax"` or `"sigmoid"`.
        label_smoothing, class_weights: as `build_loss` takes them.
        name, **kwargs: of `keras.losses.Loss`.

    Raises:
        ValueError: when it is called, if labels and logits differ in what follows the batch.
    """

    def __init__(
        self,
        kind: str,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.kind, self.label_smoothing = kind, label_smoothing
        self.class_weights = None if class_weights is None else tuple(class_weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels, logits = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        of_labels, of_logits = tuple(labels.shape)[1:], tuple(logits.shape)[1:]
        # Broadcast, they would train on nonsense.
        if of_labels != of_logits and None not in (*of_labels, *of_logits):
            raise ValueError(
                "Expected a number for each class, (batch, classes), in labels and logits. "
                f"Received: {tuple(labels.shape)} and {tuple(logits.shape)}."
            )
        smoothed = labels
        if self.label_smoothing:
            even = self.label_smoothing / labels.shape[-1]
            smoothed = (1.0 - self.label_smoothing) * labels + even
        losses = LOSSES[self.kind](smoothed, logits)
        if self.class_weights is not None:
            weights = ops.matmul(labels, ops.convert_to_tensor(self.class_weights, "float32"))
            losses = losses * weights / ops.maximum(ops.sum(labels, axis=-1), 1e-6)
        return losses

    def get_config(self) -> dict[str, Any]:
        names = ("kind", "label_smoothing", "class_weights")
        return super().get_config() | {name: getattr(self, name) for name in names}


def build_loss(
    name: str, label_smoothing: float = 0.0, class_weights: Sequence[float] | None = None
) -> keras.losses.Loss:
    """Returns the loss called `name`, a key of `LOSSES`, as a `keras.losses.Loss`.

    Args:
        name: `"softmax"` or `"sigmoid"`.
        label_smoothing: e in [0, 1); labels y of K classes become `(1 - e) y + e / K`.
        class_weights: a number for each class, or None. The loss of an image is multiplied by that
            of its class, with several labels or soft ones by their mean.

    Raises:
        ValueError: if there is no loss of this name.
    """
    require_one_of("loss", name, LOSSES)
    return Crossentropy(name, label_smoothing, class_weights, name=f"{name}_crossentropy")
