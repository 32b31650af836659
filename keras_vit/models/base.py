"""What all models share: arguments, endpoints, precision, trainability, configuration."""

from types import SimpleNamespace
from typing import Any

import keras

from keras_vit.models.precision import state_policy
from keras_vit.models.trainability import apply_trainability, trainability
from keras_vit.typing import Tensor


class ImageModel(keras.Model):
    """A functional model of images that names its intermediate results.

    Its configuration is its constructor's arguments, from which it is built again, and
    the trainability of the layers inside.

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
        self._made_of = SimpleNamespace(endpoints=endpoints, arguments=arguments, policy=policy)

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
        changes = trainability(self)
        return {**self.get_arguments(), **({"trainable_layers": changes} if changes else {})}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict | None = None) -> keras.Model:
        arguments = dict(config)
        changes = arguments.pop("trainable_layers", {})
        model = cls.from_arguments(arguments, custom_objects)
        apply_trainability(model, changes)
        return model
