"""The wrapper of every model and exported file: a function of images, with its interface."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.analysis.attention import rollout_function
from keras_vit.analysis.class_maps import class_maps_function
from keras_vit.analysis.figures import over_images
from keras_vit.models.image_model import predicting_model
from keras_vit.type_hints import Tensor

from ..data import Split
from ..data.preprocessing.preprocess import Preprocess
from ..data.tf_data_batches import eval_dataset
from ..errors import UsageError
from ..tasks import Task, task_of
from .interface import Interface


class ImageFunction:
    """A function from images (n, height, width, 3), as the interface says, to outputs (n, …)."""

    name: str  # of the source, for tables
    interface: Interface
    feature_name = "representation"  # which output `features` gives
    identity: str  # a digest of architecture, weights and features; equal for equal functions
    # From images to (n, height, width) in [0, 1], where it looks, if that can be followed.
    rollout: Callable[[Tensor], np.ndarray] | None = None
    # From images and a class of each to (n, height, width) in [0, 1], what speaks for the class.
    class_maps: Callable[[Tensor, Sequence[int]], np.ndarray] | None = None
    run: Mapping[str, Any] = {}  # the config of the run that trained it, if that is known

    @property
    def task(self) -> Task:
        """The task of its output, or else of its run; classification where neither is known."""
        return task_of(self.run, self.interface.classifies)

    def __call__(self, images: Tensor) -> np.ndarray:
        """Returns the outputs; raises ValueError for images or outputs of another shape."""
        raise NotImplementedError

    def features(self, images: Tensor) -> np.ndarray:
        """Returns (n, dimensions), what a linear classifier is put on; ValueError without any."""
        raise NotImplementedError

    def require_head(self) -> None:
        """Raises `ValueError` if the outputs are features."""
        if self.interface.output == "representation":
            raise ValueError(
                f"Expected a model with a head. Received: {self.name}, which gives features. The "
                "head of a checkpoint needs --num_classes."
            )

    def operations(self, split: Split, text: str) -> Preprocess:
        """Returns the operations of `text` on images of a split.

        Raises `ValueError` unless they make images in the range of the interface.
        """
        image_range = self.interface.image_range
        return split.preprocess(text).require_range("the preprocessing", split, image_range)

    def batches(self, split: Split, text: str, batch_size: int) -> tf.data.Dataset:
        """Returns one pass over a split, see `eval_dataset`, by the operations of `text`.

        Photos that cannot be read are left out, and named.
        """
        if not self.task.takes(split.dataset.kind):
            raise UsageError(
                f"Expected data of {self.task.learns or 'classes'} for {self.name}. Received: "
                f"{split.dataset.name}, of {split.dataset.kind or 'classes'} for each photo."
            )
        operations = self.operations(split, text)
        return eval_dataset(
            split, operations, batch_size=batch_size, skip_counter=split.left_out, task=self.task
        )


class KerasFunction(ImageFunction):
    """A Keras model, of this package or any that takes images in [-1, 1], compiled.

    Args:
        model: on images (batch, height, width, 3) in [-1, 1].
        name: of its source; "" is the model's.
        run: the config of the run that trained it, `config.json`; empty if it is not of a run.
        layer: the output used as features, an endpoint or layer; None is "representation", where
            the model has that, or else its output.
        identified: whether the identity is that of the weights when it is first asked for, or "".

    Raises `ValueError` if the model has no such layer.
    """

    def __init__(
        self,
        model: keras.Model,
        name: str = "",
        *,
        run: Mapping[str, Any] | None = None,
        layer: str | None = None,
        identified: bool = True,
    ):
        self.model, self.name, self.run = model, name or model.name, run or {}
        self._encoder, self._identified = predicting_model(model), identified
        endpoints = getattr(self._encoder, "endpoints", {})
        known = [*endpoints, *(each.name for each in self._encoder.layers)]
        if layer is not None and layer not in known:
            raise ValueError(
                f"Expected an endpoint or layer of the model: {', '.join(known)}. Received: {layer}"
            )
        usual = "representation" if "representation" in endpoints else "output"
        self.feature_name = layer or usual

    def __call__(self, images: Tensor) -> np.ndarray:
        return self._outputs(images)

    def features(self, images: Tensor) -> np.ndarray:
        return self._features(images)

    @functools.cached_property
    def interface(self) -> Interface:  # type: ignore[override]
        """That of the model; photos are prepared as the run was evaluated."""
        return Interface.of_model(self.model, self.run.get("eval_preprocess"))

    @functools.cached_property
    def rollout(self) -> Callable[[Tensor], np.ndarray] | None:  # type: ignore[override]
        """Of models whose attention is followed."""
        model = self._encoder
        if getattr(model, "arguments", {}).get("attention") != "global":
            return None
        # Prepared by the first call, as most models are never asked for it.
        prepared, stride = functools.cache(lambda: rollout_function(model)), model.token_stride
        return lambda images: over_images(prepared()(images), stride, images.shape[1:3])

    @functools.cached_property
    def class_maps(self) -> Callable[[Tensor, Sequence[int]], np.ndarray] | None:  # type: ignore[override]
        """Of models whose attention is followed, with classes or labels of an image."""
        model = self._encoder
        known = self.rollout and "logits" in model.endpoints and len(model.output_shape) == 2
        if not known or model.classifies not in ("image", "labels"):
            return None
        prepared, stride = functools.cache(lambda: class_maps_function(model)), model.token_stride
        return lambda images, classes: over_images(
            prepared()(images, classes), stride, images.shape[1:3]
        )

    @functools.cached_property
    def identity(self) -> str:  # type: ignore[override]
        """A digest of the configuration, the weights and which output the features are."""
        if not self._identified:
            return ""
        model = self._encoder
        config = json.dumps(model.get_config(), sort_keys=True, default=str)
        digest = hashlib.sha256(f"{config}{type(model).__name__} {self.feature_name}".encode())
        for weight in model.weights:
            digest.update(f"{weight.path} {weight.shape} {weight.dtype}".encode())
            digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)).tobytes())
        return digest.hexdigest()

    @functools.cached_property
    def _outputs(self):
        return compiled_function(self._encoder)

    @functools.cached_property
    def _features(self):
        model, name = self._encoder, self.feature_name
        if name in getattr(model, "endpoints", {}):
            return compiled_function(model.up_to(name))
        if name == "output":
            return self._outputs
        return compiled_function(keras.Model(model.inputs, model.get_layer(name).output))


class RawPixels(ImageFunction):
    """The function whose features are the pixels of images of 32 x 32, for comparison."""

    name, feature_name, identity = "raw pixels", "pixels", "pixels"
    interface = Interface((32, 32), output="representation")

    def features(self, images: Tensor) -> np.ndarray:
        return np.asarray(images).reshape(len(images), -1)


def compiled_function(model: Callable) -> Callable[[Tensor], np.ndarray]:
    """Returns `model` as a function from images to a NumPy array; Keras models are compiled."""
    function = model
    if isinstance(model, keras.Model) and keras.backend.backend() == "jax":
        from ..engine.jax import compiled

        function = compiled(model)
    elif isinstance(model, keras.Model):
        function = tf.function(
            lambda images: model(images, training=False), reduce_retracing=True, autograph=False
        )
    return lambda images: one_array(function(images))


def one_array(found: Any) -> np.ndarray:
    """Returns what a model gives as a NumPy array; raises ValueError for several outputs."""
    if isinstance(found, Mapping):
        raise ValueError(
            f"Expected a model with one output. Received: one that gives {sorted(found)}, of "
            "which few_shot takes one by --layer."
        )
    return keras.ops.convert_to_numpy(found)
