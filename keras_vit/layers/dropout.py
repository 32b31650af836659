"""Dropout whose randomness can be drawn ahead of the computation that uses it."""

import keras


class DrawnSeed(keras.random.SeedGenerator):
    """A seed drawn earlier, in the form that `keras.random` accepts.

    Rematerialisation runs a function twice. Were the seed drawn inside that
    function, the second run would apply another mask and the gradient would
    belong to no forward pass at all.
    """

    def __init__(self, value):
        self.value = value

    def next(self, ordered=True):
        return self.value


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(keras.layers.Layer):
    """Dropout with a separate drawing step.

    Args:
        rate: float in [0, 1), the fraction of elements set to zero.
        seed: int or None, the start of this layer's random stream.

    Call arguments:
        inputs: float tensor of any shape.
        training: bool; without it the inputs pass unchanged.

    Returns:
        A tensor like `inputs`; kept elements are divided by `1 - rate`.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must lie in [0, 1). Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.built = True

    def draw(self, training):
        """Returns `{}` if nothing is to be dropped, else `{"seed": (2,) tensor}`."""
        if not training or self.rate == 0:
            return {}
        return {"seed": self.seed_generator.next()}

    def noise_shape(self, inputs):
        return None

    def apply(self, inputs, drawn):
        """Returns `inputs` with the mask that belongs to `drawn`."""
        if not drawn:
            return inputs
        return keras.random.dropout(
            inputs, self.rate, self.noise_shape(inputs), seed=DrawnSeed(drawn["seed"])
        )

    def call(self, inputs, training=False):
        return self.apply(inputs, self.draw(training))

    def compute_output_shape(self, input_shape):
        return input_shape

    def save_own_variables(self, store):
        super().save_own_variables(store)
        if self.rate > 0:
            store["seed"] = self.seed_generator.state

    def load_own_variables(self, store):
        # Keras leaves random streams out of its files; with them training resumes exactly.
        if self.rate > 0 and "seed" in store:
            self.seed_generator.state.assign(store["seed"])

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable(package="keras_vit")
class StochasticDepth(Dropout):
    """Drops a residual branch for whole examples (Huang et al., 2016), as AugReg does.

    Args:
        rate: float in [0, 1), the probability that an example skips the branch.
        seed: int or None.

    Call arguments:
        inputs: (batch, ...) output of the branch.
        training: bool.
    """

    def noise_shape(self, inputs):
        return (keras.ops.shape(inputs)[0], *(1,) * (len(inputs.shape) - 1))
