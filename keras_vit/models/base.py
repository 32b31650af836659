"""What all models share: arguments, endpoints, precision, trainability, configuration."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import keras

from keras_vit.models.precision import state_policy
from keras_vit.models.quantized_layers import quantize_layers, quantized_layers
from keras_vit.models.trainability import apply_trainability, trainability
from keras_vit.typing import Tensor


class ImageModel(keras.Model):
    """A functional model of images that names its intermediate results.

    Its configuration is its constructor's arguments, from which it is built again, which of the
    layers inside are frozen or quantized, and what makes predictions readable, where it is known:
    `class_names` and `preprocessing`.

    Args:
        images: the input, a Keras tensor.
        endpoints: dict of names to Keras tensors in the order of the forward pass; the last
            is the model's output.
        arguments: dict, what the constructor of the model's class was given, checked, apart
            from `name`, `trainable` and `dtype`.
        policy: the dtype policy of the layers.
        name: str.
        trainable: bool.
    """

    def __init__(
        self,
        images: Tensor,
        endpoints: dict[str, Tensor],
        arguments: dict[str, Any],
        policy: keras.DTypePolicy,
        name: str,
        trainable: bool = True,
    ):
        output = list(endpoints.values())[-1]
        super().__init__(inputs=images, outputs=output, name=name, trainable=trainable)
        state_policy(self, policy)
        # Within a namespace it is out of reach of Keras's tracking of attributes.
        self._made_of = SimpleNamespace(
            endpoints=endpoints,
            arguments=arguments,
            policy=policy,
            class_names=None,
            preprocessing=None,
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """What the constructor was given, apart from `name`, `trainable` and `dtype`."""
        return self._made_of.arguments

    @property
    def endpoints(self) -> dict[str, Tensor]:
        """Every intermediate result by name, as tensors of the model's graph.

        `keras.Model(model.input, model.endpoints["representation"])` computes one.
        """
        return dict(self._made_of.endpoints)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called, in the order of the logits, or None if that is not known.

        Set to a sequence of one name for each class, it is saved with the model.
        """
        return self._made_of.class_names

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        """Takes one name for each class; raises ValueError for another number of them."""
        if names is not None:
            names = tuple(map(str, names))
            num_classes = self.arguments.get("num_classes")
            if len(names) != num_classes:
                raise ValueError(
                    f"Expected one name for each of the model's {num_classes or 0} classes. "
                    f"Received: {len(names)} names."
                )
        self._made_of.class_names = names

    @property
    def preprocessing(self) -> str | None:
        """How a photo becomes an image of the model, or None if that is not known.

        Operations from left to right, such as "decode|resize(224)|value_range(-1, 1)": the size,
        how it is reached, and the range. Set, it is saved with the model.
        """
        return self._made_of.preprocessing

    @preprocessing.setter
    def preprocessing(self, operations: str | None) -> None:
        """Takes a text of operations, which is not checked here."""
        self._made_of.preprocessing = operations

    def get_arguments(self) -> dict[str, Any]:
        """Returns everything that builds the model again, serializable."""
        return {
            **self.arguments,
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self._made_of.policy),
        }

    @classmethod
    def from_arguments(
        cls, arguments: dict[str, Any], custom_objects: dict | None = None
    ) -> keras.Model:
        """Builds a model of what `get_arguments` returned."""
        return cls(**arguments)

    def get_config(self) -> dict[str, Any]:
        known = {
            "trainable_layers": trainability(self),
            "quantized_layers": quantized_layers(self),
            "class_names": self.class_names,
            "preprocessing": self.preprocessing,
        }
        return {**self.get_arguments(), **{name: value for name, value in known.items() if value}}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict | None = None) -> keras.Model:
        arguments = dict(config)
        changes = arguments.pop("trainable_layers", {})
        modes = arguments.pop("quantized_layers", {})
        class_names = arguments.pop("class_names", None)
        preprocessing = arguments.pop("preprocessing", None)
        model = cls.from_arguments(arguments, custom_objects)
        apply_trainability(model, changes)
        quantize_layers(model, modes)
        model.class_names, model.preprocessing = class_names, preprocessing
        return model
