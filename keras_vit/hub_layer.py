"""Any TF2 Hub module as a layer of Keras 3."""

import os
from typing import Any, NamedTuple

import keras

from keras_vit.errors import damage_named, imported
from keras_vit.type_hints import Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class HubLayer(keras.layers.Layer):
    """A TF2 reusable SavedModel as a layer whose variables every optimizer can train.

    `hub.KerasLayer` belongs to Keras 2, and `keras.layers.TFSMLayer` gives its
    variables names that optimizers with momentum cannot use. This layer tracks the
    module's own variables under names of its own; nothing is copied.

    Args:
        handle: what `tensorflow_hub.load` takes: a directory, or an address.
        trainable: whether the module's trainable variables are trained.
            Its dropout is active only while they are.

    Call arguments:
        images: float32 tensor, as the module takes it: (batch, height, width, 3)
            in [0, 1] for modules of this package.
        training: bool.

    Returns:
        The result of the module.

    Raises:
        FileNotFoundError: if there is nothing at that path.
        ValueError: if tensorflow-hub is not installed, or if the SavedModel is damaged, cannot be
            called or lists no variables.

    Examples:
        >>> model = keras.Sequential([
        ...     keras.Input((224, 224, 3)),
        ...     HubLayer("modules/vit_b16_feature_vector"),
        ...     keras.layers.Dense(10),
        ... ])
        >>> model.compile("adamw", keras.losses.CategoricalCrossentropy(from_logits=True))
    """

    def __init__(self, handle: str | os.PathLike, trainable: bool = True, **kwargs: Any):
        # A module computes in float32, whatever the policy of the layers around it.
        super().__init__(trainable=trainable, autocast=False, **kwargs)
        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                "A TF-Hub module needs Keras on TensorFlow. Received: backend "
                f"{keras.backend.backend()!r}. Set KERAS_BACKEND=tensorflow."
            )
        self.handle = str(handle)
        tensorflow_hub = imported("tensorflow_hub", "hub")
        if "://" not in self.handle and not os.path.exists(self.handle):
            raise FileNotFoundError(
                f"Expected the directory of a TF-Hub module. There is none at {self.handle}, seen "
                f"from {os.getcwd()}. Change to the folder where that path is right, or copy the "
                "module there."
            )
        with damage_named(f"{self.handle} cannot be loaded as a TF-Hub module"):
            module = tensorflow_hub.load(self.handle)
        if not callable(module) or not hasattr(module, "variables"):
            raise ValueError(
                "Expected a TF2 reusable SavedModel: callable, with variables. Received: "
                f"{self.handle}. `keras-vit export hub` writes one."
            )
        to_train = {id(v) for v in getattr(module, "trainable_variables", ())}
        for index, variable in enumerate(module.variables):
            # Names as the module has them, "kernel:0" or with slashes, break optimizers that
            # derive the names of their own variables from them; and they may repeat.
            name = f"{variable.name.split(':')[0].replace('/', '_')}_{index}"
            is_trained = id(variable) in to_train
            self._track_variable(keras.Variable(variable, name=name, trainable=is_trained))
        losses = list(getattr(module, "regularization_losses", ()))
        self._module = _Module(module, losses)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "HubLayer":
        # Keras's own puts the whole configuration before an error of the constructor.
        return cls(**config)

    def call(self, images: Tensor, training: bool = False) -> Tensor:
        if keras.backend.is_float_dtype(images.dtype):
            images = keras.ops.cast(images, "float32")
        result = self._module.module(images, training=bool(training) and self.trainable)
        if self.trainable:
            for loss in self._module.regularization_losses:
                self.add_loss(loss())
        return result

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "handle": self.handle}


class _Module(NamedTuple):
    """Keras would list its variables a second time; TensorFlow, which saves it, looks inside."""

    module: Any
    regularization_losses: list
