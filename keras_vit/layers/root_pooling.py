"""The max pooling at the root of Big Transfer's ResNet."""

from typing import Any

import keras
from keras import ops

from keras_vit.typing import Tensor

POOL_PADDINGS = ("edge", "zero")


@keras.saving.register_keras_serializable(package="keras_vit")
class RootPooling(keras.layers.Layer):
    """Maximum of 3x3 windows, two cells apart, with one cell of padding around.

    Args:
        padding: "edge" repeats the border, so padding never exceeds what is
            there (the result of padding with minus infinity), or "zero", which
            does where the border is negative.

    Call arguments:
        inputs: (batch, height, width, channels).

    Returns:
        (batch, ceil(height / 2), ceil(width / 2), channels).
    """

    def __init__(self, padding: str = "edge", **kwargs: Any):
        super().__init__(**kwargs)
        if padding not in POOL_PADDINGS:
            raise ValueError(
                f"`padding` must be one of {POOL_PADDINGS}. Received: padding={padding!r}"
            )
        self.padding = padding
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        mode = {"edge": "symmetric", "zero": "constant"}[self.padding]
        padded = ops.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)), mode=mode)
        return ops.max_pool(padded, 3, 2, "valid", data_format="channels_last")

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        batch, *size, channels = input_shape
        return (batch, *(None if n is None else -(-n // 2) for n in size), channels)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "padding": self.padding}
