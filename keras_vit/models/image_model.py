"""The base of all models: endpoints, head, precision, configuration.

Under "mixed_bfloat16" and "mixed_float16" variables are float32 and layers compute in half
precision. Under every policy these are float32: the statistics of normalizations, the softmax of
attention, the representation, the head and the losses.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.backends.by_backend import predicting
from keras_vit.models import inner_layers as inner
from keras_vit.models.argument_ranges import as_height_width
from keras_vit.name_suggestions import refuse_unknown, require_one_of
from keras_vit.photos.imagenet_classes import class_names_of
from keras_vit.photos.prepare_photos import outside_of_models
from keras_vit.type_hints import Tensor

# Attributes that are saved with a model where they are known.
_SAVED = ("class_names", "preprocessing", "license", "activation", "thresholds")
ACTIVATIONS = {
    "softmax": keras.ops.softmax,
    "sigmoid": keras.ops.sigmoid,
    "linear": keras.activations.linear,
}


def activation_name(activation: Callable) -> str:
    """Returns the name of a function, or of a layer in its place."""
    return getattr(activation, "__name__", type(activation).__name__).lower()


def model_inside(model: keras.Model, needs_head: bool = False) -> str:
    """Returns a sentence that says how to get from a model to the one of this package, or "".

    With `needs_head` it says so where the classes are those of layers that follow ours.
    """
    if isinstance(model, ImageModel):
        return ""
    layers = list(getattr(model, "layers", ()))
    own_head = " Its head stands outside of ours: call model.predict, or export it first."
    for place, layer in enumerate(layers):
        if isinstance(layer, ImageModel):
            headless = layer.arguments.get("num_classes") is None
            if needs_head and (headless or any(each.weights for each in layers[place + 1 :])):
                return own_head
            return f" Pass the model inside it: model.get_layer({layer.name!r})."
    if any(type(layer).__module__.startswith("keras_vit.") for layer in layers):
        if None in model.input_shape[1:3]:
            return (
                " It takes images of any size, without names of classes: call it on images in "
                "[-1, 1], or pass the model that it was made of."
            )
        if layers[-1].name not in ("head", "head_mean", "representation"):
            return own_head if needs_head else " Pass the model that it was made of."
        return (
            " It is a copy without our class, as keras.models.clone_model makes it: pass the "
            "original, after original.set_weights(copy.get_weights())."
        )
    return ""


# The layers that give logits; the second is that of DeiT's distilled models.
HEADS = ("head", "head_distillation")


def encoder_of(model: keras.Model) -> keras.Model:
    """Returns the encoder inside of a model around one, or the model itself."""
    return getattr(model, "encoder", model)


def predicting_model(model: keras.Model) -> keras.Model:
    """Returns the model that predicts: the encoder of one that only trains it, or itself."""
    return model if "num_classes" in getattr(model, "arguments", {}) else encoder_of(model)


def require_kind(model: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises ValueError, which names what is `expected`, unless the model is of that class."""
    if not isinstance(model, kind):
        name, inside = "", ""
        if isinstance(model, keras.Model):
            name, inside = f"{model.name}, ", model_inside(model)
        received = f"{name}a {type(model).__name__}"
        raise ValueError(f"Expected {expected}. Received: {received}.{inside}")


def images_and_policy(arguments: Mapping[str, Any], dtype: Any) -> tuple[Tensor, keras.DTypePolicy]:
    """Returns a model's input, (batch, height, width, in_channels), and its layers' policy."""
    shape = (*as_height_width(arguments["image_size"]), arguments["in_channels"])
    images = keras.Input(shape, dtype="float32", name="images")
    return images, keras.dtype_policies.get(dtype or keras.config.dtype_policy())


def classification_head(
    num_classes: int | None, bias: float, distilled: bool = False
) -> Callable[[Tensor], dict[str, Tensor]]:
    """Returns the linear classifier, which computes in float32 under every precision policy.

    It is a function from features to the endpoints "representation", the features in float32, and
    "logits", if there are `num_classes`. Its kernel is initially zero, its bias `bias`. With
    `distilled` there are two, each for a half of the features, and "logits" are their mean.
    """
    identity = keras.layers.Identity(dtype="float32", name="representation")
    if num_classes is None:
        return lambda features: {"representation": identity(features)}
    head, *others = (
        keras.layers.Dense(
            num_classes,
            kernel_initializer="zeros",
            bias_initializer=keras.initializers.Constant(bias),
            dtype="float32",
            name=name,
        )
        for name in HEADS[: 1 + distilled]
    )
    mean = keras.layers.Average(dtype="float32", name="head_mean") if distilled else None

    def classify(features):
        x = identity(features)
        if mean is None:
            return {"representation": x, "logits": head(x)}
        both = [each(half) for each, half in zip((head, *others), ops.split(x, 2, -1), strict=True)]
        own = dict(zip(("class_logits", "distillation_logits"), both, strict=True))
        return {"representation": x, **own, "logits": mean(both)}

    return classify


class ImageModel(keras.Model):
    """A functional model of images that names its intermediate results.

    Its configuration is its constructor's arguments, which layers inside are frozen or quantized,
    and, where they are known, `class_names`, `preprocessing`, `activation`, `thresholds` and
    `license`.

    Attributes:
        preprocessing: how a photo becomes an image of the model, or None if that is not known.
            Operations from left to right, such as "decode|resize(224)|value_range(-1, 1)": the
            size, how it is reached, and the range. They are not checked here.
        license: that of published weights which were loaded or taught the model, if it does not
            allow every use.

    Args:
        images: the input, a Keras tensor.
        endpoints: names to Keras tensors in the order of the forward pass; the last is the output.
        arguments: those of the class's constructor, checked; not `name`, `trainable` and `dtype`.
        policy: the dtype policy of the layers.
        shortcut: the last endpoints again, of less computation, or {}. The model computes these
            where no other endpoint is asked for.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> "ImageModel":
        """Refuses an argument that the constructor does not have, and names the one it has."""
        parameters = inspect.signature(cls.__init__).parameters
        if all(each.kind != each.VAR_KEYWORD for each in parameters.values()):
            refuse_unknown(kwargs, list(parameters)[1:])
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        images: Tensor,
        endpoints: dict[str, Tensor],
        arguments: dict[str, Any],
        policy: keras.DTypePolicy,
        name: str,
        trainable: bool = True,
        shortcut: Mapping[str, Tensor] = MappingProxyType({}),
    ):
        output = list(endpoints.values())[-1]
        super().__init__(inputs=images, outputs=output, name=name)
        # The constructor's would not reach the layers inside, which a model around this one asks.
        self.trainable = trainable
        # Set on a model, a policy that quantizes would quantize its layers again.
        if policy.quantization_mode is None:
            self.dtype_policy = policy
        # A namespace, so that Keras does not track these as sublayers.
        self._record = SimpleNamespace(
            endpoints=endpoints,
            arguments=arguments,
            policy=policy,
            class_names=None,
            activation=None,
            thresholds=None,
            shortcut=shortcut,
            computed=keras.Model(images, list(shortcut.values())[-1]) if shortcut else None,
        )
        self.preprocessing: str | None = None
        self.license: str | None = None

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
    def classifies(self) -> str:
        """Says of what the output has a row.

        `"pixel"` where there is one for each pixel, `"labels"` of images that may have several,
        by a sigmoid with `thresholds`, `"number"` where it has one for each column of a table, in
        its own unit, else `"image"`.
        """
        if len(self.output_shape) == 4:
            return "pixel"
        if self.activation == "linear":
            return "number"
        return "labels" if self.thresholds and self.activation == "sigmoid" else "image"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Does what Keras does; images of another shape are refused with what to do."""
        self._require_shape(args[0] if args else kwargs.get("inputs"))
        return super().__call__(*args, **kwargs)

    def _look_at_data(self, x: Any = None, *_args: Any, **_kwargs: Any) -> None:
        # Before Keras does: on JAX it empties a model in which an error occurs.
        data = x[0] if isinstance(x, keras.utils.PyDataset) else getattr(x, "element_spec", x)
        images = data[0] if isinstance(data, tuple) else data
        self._require_shape(images)
        if isinstance(images, np.ndarray) and (wrong := outside_of_models(images[:32])):
            warnings.warn(wrong, stacklevel=3)

    def _require_shape(self, images: Any) -> None:
        expected = tuple(self.input_shape)
        shape = tuple(getattr(images, "shape", None) or expected)
        known = zip(shape[1:], expected[1:], strict=False)
        if len(shape) != 4 or any(None not in pair and pair[0] != pair[1] for pair in known):
            advice = "Resize them."
            if len(shape) == 3:
                advice = "One image is a batch as images[None]."
            elif shape[1] == expected[-1] != shape[-1]:
                advice = "Channels come last: transpose them."
            elif shape[-1] != expected[-1]:
                advice = "Convert them, or build the model with in_channels."
            elif hasattr(self, "any_resolution"):
                advice += (
                    " model.any_resolution() has the same weights and takes images of any size."
                )
            raise ValueError(
                f"{self.name}: expected images of shape {expected}. Received: {shape}. {advice}"
            )

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Does what `keras.Model.save` does; refuses HDF5, from which no model is read again."""
        if str(filepath).lower().endswith((".h5", ".hdf5")):
            raise ValueError(
                "Expected a name that ends with .keras: Keras cannot load this model from HDF5. "
                f"Received: {filepath}. The weights alone are kept by model.save_weights"
                '("….weights.h5").'
            )
        super().save(filepath, *args, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = None, mask: Tensor = None) -> Tensor:
        self._require_shape(inputs)  # Keras on JAX comes here without `__call__`.
        computed = self._record.computed
        call = super().call if computed is None else computed.call
        return call(inputs, training=training, mask=mask)

    def up_to(self, outputs: str | Sequence[str] = "output") -> keras.Model:
        """Returns the model of the same weights that ends at an endpoint, without needless work.

        Args:
            outputs: "output", or a name of `endpoints` or `attention_endpoints`, or a sequence of
                such names for a model that returns a dict of them.

        Raises:
            ValueError: if the model has nothing of such a name.
        """
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        output = list(self.endpoints)[-1]
        wanted = {name: output if name == "output" else name for name in names}
        named = self._record.shortcut
        if not set(wanted.values()) <= set(named):
            named = self.endpoints
        unknown = set(wanted.values()) - set(named)
        # An axial model has none, and says so where they are asked for.
        if unknown and (
            self.arguments.get("attention") == "global" or "/attention" in str(unknown)
        ):
            named = named | getattr(self, "attention_endpoints", {})
        if unknown := set(wanted.values()) - set(named):
            raise ValueError(
                f"Expected names of {', '.join(named)}, output. Received: {', '.join(unknown)}"
            )
        found = {name: named[key] for name, key in wanted.items()}
        result = found[outputs] if isinstance(outputs, str) else found
        return keras.Model(self.input, result, name=self.name)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, in the order of the logits, or None if they are not known.

        Set to a sequence of one name for each class, it is saved with the model.
        """
        return self._record.class_names

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        """Takes one name for each class; raises ValueError for another number, or no line."""
        if names is not None:
            names = class_names_of(names, self.arguments.get("num_classes") or 0, self.name)
        self._record.class_names = names

    @property
    def activation(self) -> str:
        """`"softmax"` or `"sigmoid"`: what makes probabilities of the logits, as the loss does.

        `"linear"` says that they are numbers of their own.

        Until it is set, `"softmax"`, or of a single logit `"sigmoid"`. It is saved with the model.
        """
        default = "sigmoid" if self.arguments.get("num_classes") == 1 else "softmax"
        return self._record.activation or default

    @activation.setter
    def activation(self, name: str | None) -> None:
        """Takes one of `ACTIVATIONS`, or None for the default; raises ValueError otherwise."""
        if name is not None:
            require_one_of("activation", name, ACTIVATIONS)
        self._record.activation = name

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        """The least probability at which each class is an answer, in [0, 1]; None shows all.

        Set to one number for each class, they are saved with the model.
        """
        return self._record.thresholds

    @thresholds.setter
    def thresholds(self, values: Sequence[float] | None) -> None:
        """Takes a number in [0, 1] for each class; raises ValueError for others."""
        if values is not None:
            values, classes = tuple(map(float, values)), self.arguments.get("num_classes") or 0
            if len(values) != classes or not all(0 <= each <= 1 for each in values):
                expected = f"Expected a threshold in [0, 1] for each of {classes} classes"
                raise ValueError(f"{expected}. Received: {values}")
        self._record.thresholds = values

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Does what `keras.Model.predict` does; several threads may call it at once."""
        self._look_at_data(*args, **kwargs)
        with predicting(self):
            return super().predict(*args, **kwargs)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Does what `keras.Model.fit` does; images of another shape are refused before it."""
        self._look_at_data(*args, **kwargs)
        return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Does what `keras.Model.evaluate` does; other threads may predict meanwhile."""
        self._look_at_data(*args, **kwargs)
        with predicting(self):
            return super().evaluate(*args, **kwargs)

    def require_logits(self) -> None:
        """Raises ValueError if the head was given an activation, which saving would lose."""
        for layer in self.layers:
            activation = getattr(layer, "activation", keras.activations.linear)
            if layer.name.startswith("head") and activation is not keras.activations.linear:
                raise ValueError(
                    "Expected a head without activation: a saved model gives logits. Received: "
                    f"{activation_name(activation)}, set on {self.name}'s head. Put it after the "
                    "model, keras.Sequential([model, keras.layers.Activation(…)]), or set "
                    "`model.activation`, which keras_vit.predict and exports apply."
                )

    def get_config(self) -> dict[str, Any]:
        self.require_logits()
        serialized = keras.dtype_policies.serialize(self._record.policy)
        # Keras's mark of an object that it saw before is its address, which no other process has.
        dtype = {name: serialized[name] for name in serialized if name != "shared_object_id"}
        known = {
            "trainable_layers": inner.trainability(self),
            "quantized_layers": inner.quantized_layers(self),
            **{name: getattr(self, name) for name in _SAVED},
            "activation": self._record.activation,
        }
        constructor = {"name": self.name, "trainable": self.trainable, "dtype": dtype}
        known = {name: value for name, value in known.items() if value}
        return {**self.arguments, **constructor, **known}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict | None = None) -> keras.Model:
        arguments = dict(config)
        changes = arguments.pop("trainable_layers", {})
        modes = arguments.pop("quantized_layers", {})
        saved = {name: arguments.pop(name, None) for name in _SAVED}
        model = cls(**arguments)
        inner.apply_trainability(model, changes)
        inner.quantize_layers(model, modes)
        if not isinstance(saved["preprocessing"], str | None):
            received = f"Received: {saved['preprocessing']!r}"
            raise ValueError(f"Expected `preprocessing` as a text. {received}")
        for name, value in saved.items():
            setattr(model, name, value)
        return model


class ModelAroundEncoder(ImageModel):
    """The base of models around an encoder, their first argument, which is saved inside them."""

    @property
    def encoder(self) -> keras.Model:
        """The `VisionTransformer` that is trained, on the same weights."""
        return self._record.encoder

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["dtype"]  # it is the encoder's
        return {"encoder": keras.saving.serialize_keras_object(self.encoder), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict | None = None) -> keras.Model:
        encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects)
        return super().from_config({**config, "encoder": encoder}, custom_objects)
