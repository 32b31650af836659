"""What the models of feature maps share: the pooled head, arguments and endpoints."""

import keras

from keras_vit.models.trainability import SavedTrainability


class FeatureMapClassifier(SavedTrainability):
    """A functional model that averages a feature map and classifies the mean.

    Args:
        images: the input, a Keras tensor.
        endpoints: dict of intermediate results; "encoded", the feature map, is
            averaged, and the results of that are added.
        arguments: dict, the constructor's arguments of the model's class.
        policy: dtype policy of the model. The head is float32 under every policy.
        name: str.
        trainable: bool.
    """

    def __init__(self, images, endpoints, arguments, policy, name, trainable):
        x = keras.layers.GlobalAveragePooling2D(dtype=policy, name="pool")(endpoints["encoded"])
        x = keras.layers.Identity(dtype="float32", name="representation")(x)
        endpoints["representation"] = x
        if arguments["num_classes"] is not None:
            x = keras.layers.Dense(
                arguments["num_classes"],
                kernel_initializer="zeros",
                bias_initializer=keras.initializers.Constant(arguments["head_bias_init"]),
                dtype="float32",
                name="head",
            )(x)
            endpoints["logits"] = x
        super().__init__(inputs=images, outputs=x, name=name, trainable=trainable)
        self._follow(policy)
        self._record = _Record(endpoints, arguments, policy)

    @property
    def arguments(self):
        """The constructor's arguments, a dict."""
        return self._record.arguments

    @property
    def endpoints(self):
        """Every intermediate result by name: the stages' feature maps and the rest."""
        return dict(self._record.endpoints)

    def get_arguments(self):
        return {
            **self.arguments,
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self._record.policy),
        }


class _Record:
    """What the model remembers, out of reach of Keras's attribute tracking."""

    def __init__(self, endpoints, arguments, policy):
        self.endpoints = endpoints
        self.arguments = arguments
        self.policy = policy
