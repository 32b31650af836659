"""What all models share: layers by name, endpoints, head, precision, configuration.

Under "mixed_bfloat16" and "mixed_float16" variables are float32 and layers compute in half
precision. Under every policy these are float32: the statistics of normalizations, the softmax of
attention, the representation, the head and the losses.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import keras

from keras_vit.backends.by_backend import predicting
from keras_vit.models.find_and_replace_layers import (
    apply_trainability,
    quantize_layers,
    quantized_layers,
    trainability,
)
from keras_vit.type_hints import Tensor


def policy_of(dtype: str | keras.DTypePolicy | None) -> keras.DTypePolicy:
    """Returns the policy that a model's `dtype` means; None is Keras's global one.

    Raises:
        ValueError: if it is none of Keras's.
    """
    try:
        return keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Expected `dtype` to be a dtype policy of Keras, such as 'float32', 'bfloat16', "
            f"'mixed_bfloat16' or 'mixed_float16'. Received: {dtype!r}. Layers of 8 bits are made "
            "of a trained model, by model.quantize('int8') or model.quantize('float8')."
        ) from error


class LayersByName:
    """Makes a layer when its name is first used, and returns the same layer afterwards.

    So one forward function builds a model and, called again on other images, a second
    graph on the same weights.

    Args:
        dtype: of the model: a dtype policy, its name, or None for Keras's global one.
    """

    def __init__(self, dtype: str | keras.DTypePolicy | None):
        self.policy = policy_of(dtype)
        self.made: dict[str, keras.layers.Layer] = {}

    def __call__(
        self, name: str, make: Callable, dtype: str | None = None, **arguments: Any
    ) -> keras.layers.Layer:
        """Returns the layer of a name.

        Args:
            name: str.
            make: class or function that makes the layer the first time.
            dtype: its precision, if that is not the model's.
            **arguments: of `make`.
        """
        if name not in self.made:
            self.made[name] = make(**arguments, dtype=dtype or self.policy, name=name)
        return self.made[name]


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
    initial = keras.initializers.Constant(bias)
    zero = {"kernel_initializer": "zeros", "bias_initializer": initial}
    head = layer("head", keras.layers.Dense, dtype="float32", units=num_classes, **zero)
    return {"representation": x, "logits": head(x)}


class ImageModel(keras.Model):
    """A functional model of images that names its intermediate results.

    Its configuration is its constructor's arguments, which layers inside are frozen or quantized,
    and, where they are known, `class_names` and `preprocessing`.

    Args:
        images: the input, a Keras tensor.
        endpoints: dict of names to Keras tensors in the order of the forward pass; the last
            is the model's output.
        arguments: dict, the checked arguments of the class's constructor, apart from `name`,
            `trainable` and `dtype`.
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
        # Set on a model, a policy that quantizes would quantize its layers again.
        if policy.quantization_mode is None:
            self.dtype_policy = policy
        # A namespace, so that Keras does not track these as sublayers.
        self._record = SimpleNamespace(
            endpoints=endpoints,
            arguments=arguments,
            policy=policy,
            class_names=None,
            preprocessing=None,
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, apart from `name`, `trainable` and `dtype`."""
        return self._record.arguments

    @property
    def endpoints(self) -> dict[str, Tensor]:
        """Every intermediate result by name, as tensors of the model's graph.

        `keras.Model(model.input, model.endpoints["representation"])` computes one.
        """
        return dict(self._record.endpoints)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, in the order of the logits, or None if they are not known.

        Set to a sequence of one name for each class, it is saved with the model.
        """
        return self._record.class_names

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
        self._record.class_names = names

    @property
    def preprocessing(self) -> str | None:
        """How a photo becomes an image of the model, or None if that is not known.

        Operations from left to right, such as "decode|resize(224)|value_range(-1, 1)": the size,
        how it is reached, and the range. Set, it is saved with the model.
        """
        return self._record.preprocessing

    @preprocessing.setter
    def preprocessing(self, operations: str | None) -> None:
        """Takes a text of operations, which is not checked here."""
        self._record.preprocessing = operations

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Does what `keras.Model.predict` does; several threads may call it at once."""
        with predicting(self):
            return super().predict(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Does what `keras.Model.evaluate` does; other threads may predict meanwhile."""
        with predicting(self):
            return super().evaluate(*args, **kwargs)

    def get_arguments(self) -> dict[str, Any]:
        """Returns everything that builds the model again, serializable."""
        dtype = keras.dtype_policies.serialize(self._record.policy)
        return {**self.arguments, "name": self.name, "trainable": self.trainable, "dtype": dtype}

    @classmethod
    def from_arguments(
        cls, arguments: dict[str, Any], custom_objects: dict | None = None
    ) -> keras.Model:
        """Builds a model from the result of `get_arguments`."""
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
