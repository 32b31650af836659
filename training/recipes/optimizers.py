"""SGD with momentum and AdamW as the original trains with them, as Keras optimizers.

They differ from Keras's own in what changes the trajectory: the velocity of `Momentum` holds no
learning rate, `AdamW` adds its epsilon outside the bias-corrected root and decays kernels only,
first moments can be stored in bfloat16, and the moving average of the weights starts from the
weights. All work with `compile` and `fit`; a distributed loop calls `apply_reduced`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import keras
from keras import ops
from ml_collections import ConfigDict

from keras_vit.typing import Tensor
from training.config_keys import default_config
from training.recipes.freezing import first_steps
from training.recipes.layer_decay import rate_factors
from training.recipes.schedules import WarmupDecay

LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule


class _Optimizer(keras.optimizers.Optimizer):
    """What both optimizers share: decoupled weight decay, moment precision, weight average."""

    def __init__(
        self,
        learning_rate: LearningRate,
        weight_decay: float = 0.0,
        first_moment_dtype: str = "float32",
        rate_factors: Mapping[str, float] | None = None,
        first_steps: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=None, **kwargs)
        self.decoupled_weight_decay = float(weight_decay)
        self.first_moment_dtype = first_moment_dtype
        self.rate_factors = dict(rate_factors or {})
        self.first_steps = dict(first_steps or {})

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._decayed = [variable.name == "kernel" for variable in variables]
        self._factors = [self.rate_factors.get(variable.path, 1.0) for variable in variables]
        self._first_steps = [self.first_steps.get(variable.path, 0) for variable in variables]
        self.first_moments = [
            self.add_variable(
                variable.shape, dtype=self.first_moment_dtype, name=f"first_moment_{index}"
            )
            for index, variable in enumerate(variables)
        ]
        if self.use_ema:
            for average, variable in zip(
                self._model_variables_moving_average, variables, strict=True
            ):
                average.assign(variable)

    def _once_released(self, index, value, before):
        """Returns `value` from the first step of variable number `index` on, else `before`."""
        first = self._first_steps[index]
        return ops.where(self._iterations >= first, value, before) if first else value

    def _gradient_of(self, index, gradient, variable):
        """Returns the gradient in the variable's precision, 0 while that is frozen."""
        return self._once_released(index, ops.cast(gradient, variable.dtype), 0.0)

    def _decrease(self, variable, index, step, learning_rate):
        """Subtracts `factor * learning_rate * (step + weight_decay * variable)`."""
        rate = ops.cast(learning_rate, variable.dtype)
        if self._factors[index] != 1.0:
            rate = rate * self._factors[index]
        rate = self._once_released(index, rate, 0.0)
        if self.decoupled_weight_decay and self._decayed[index]:
            step = step + self.decoupled_weight_decay * variable
        self.assign_sub(variable, rate * step)

    def _update_model_variables_moving_average(self, trainable_variables):
        # Keras forgets the start weights at the first update; Polyak averaging counts them.
        pairs = zip(trainable_variables, self._model_variables_moving_average, strict=True)
        for index, (variable, average) in enumerate(pairs):
            value = self.ema_momentum * average + (1.0 - self.ema_momentum) * variable
            average.assign(self._once_released(index, value, ops.convert_to_tensor(average)))

    def apply_reduced(self, gradients: Sequence[Tensor]) -> Tensor:
        """Clips and applies gradients that are already summed over all replicas.

        Call it in replica context (or without a strategy), after `build`: each replica updates
        its own copy of the variables, with no further communication.

        Args:
            gradients: list of float32 tensors, one per variable given to `build`.

        Returns:
            Float32 scalar, the global norm of the gradients before clipping.
        """
        # What is frozen takes no part in the norm, which clips.
        gradients = [self._once_released(i, each, 0.0) for i, each in enumerate(gradients)]
        squares = [ops.sum(ops.square(gradient)) for gradient in gradients]
        norm = ops.sqrt(ops.sum(ops.stack(squares)))
        if self.global_clipnorm:
            scale = self.global_clipnorm / ops.maximum(norm, self.global_clipnorm)
            gradients = [gradient * scale for gradient in gradients]
        rate = self.learning_rate
        for gradient, variable in zip(gradients, self._trainable_variables, strict=True):
            self.update_step(gradient, variable, rate)
        if self.use_ema:
            self._update_model_variables_moving_average(self._trainable_variables)
        self._iterations.assign_add(1)
        return norm

    def swap_averages(self) -> None:
        """Exchanges the weights with their moving averages; calling it twice changes nothing."""
        for variable, average in zip(
            self._trainable_variables, self._model_variables_moving_average, strict=True
        ):
            weights = ops.convert_to_numpy(variable)
            variable.assign(average)
            average.assign(weights)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "weight_decay": self.decoupled_weight_decay,
            "first_moment_dtype": self.first_moment_dtype,
            "rate_factors": self.rate_factors,
            "first_steps": self.first_steps,
        }


@keras.saving.register_keras_serializable("keras_vit")
class Momentum(_Optimizer):
    """Gradient descent with momentum: `m <- momentum m + g; p <- p - rate (m + decay p)`.

    Args:
        learning_rate: float or schedule.
        momentum: float in [0, 1).
        weight_decay: float, decoupled, relative to the rate, on variables named `kernel`.
        first_moment_dtype: dtype that `m` is stored in; it is computed and used in the dtype
            of the variable.
        rate_factors: {path of a variable: factor of its rate}; 1 for all others.
        first_steps: {path of a variable: the first update that changes it}; 0 for all others.
            Until then its gradient counts as 0, and its moments start with that update.
        **kwargs: of `keras.optimizers.Optimizer`, such as `global_clipnorm` and `use_ema`.
    """

    def __init__(self, learning_rate: LearningRate, momentum: float = 0.9, **kwargs: Any) -> None:
        super().__init__(learning_rate, **kwargs)
        self.momentum = momentum

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        index = self._get_variable_index(variable)
        moment = self.first_moments[index]
        gradient = self._gradient_of(index, gradient, variable)
        velocity = self.momentum * ops.cast(moment, variable.dtype) + gradient
        self.assign(moment, velocity)
        self._decrease(variable, index, velocity, learning_rate)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"momentum": self.momentum}


@keras.saving.register_keras_serializable("keras_vit")
class AdamW(_Optimizer):
    """Adam with decoupled weight decay: `p <- p - rate (m^ / (sqrt(v^) + epsilon) + decay p)`.

    `m^` and `v^` are the bias-corrected moments. Adam is `weight_decay=0`.

    Args:
        learning_rate: float or schedule.
        weight_decay: float, relative to the rate, on variables named `kernel`.
        beta_1, beta_2: floats in [0, 1), decays of the moments.
        epsilon: float, added to the root of the corrected second moment.
        first_moment_dtype: dtype that `m` is stored in; it is computed and used in the dtype
            of the variable.
        rate_factors: {path of a variable: factor of its rate}; 1 for all others.
        first_steps: {path of a variable: the first update that changes it}; 0 for all others.
            Until then its gradient counts as 0, and its moments start with that update.
        **kwargs: of `keras.optimizers.Optimizer`, such as `global_clipnorm` and `use_ema`.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        weight_decay: float = 0.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.second_moments = [
            self.add_variable(variable.shape, dtype=variable.dtype, name=f"second_moment_{index}")
            for index, variable in enumerate(variables)
        ]

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        index = self._get_variable_index(variable)
        moment, second_moment = self.first_moments[index], self.second_moments[index]
        gradient = self._gradient_of(index, gradient, variable)
        # The number of this update among those that change the variable, at least 1.
        update = self._iterations + 1 - self._first_steps[index]
        update = ops.cast(self._once_released(index, update, 1), variable.dtype)

        first = self.beta_1 * ops.cast(moment, variable.dtype) + (1.0 - self.beta_1) * gradient
        second = self.beta_2 * second_moment + (1.0 - self.beta_2) * ops.square(gradient)
        self.assign(moment, first)
        self.assign(second_moment, second)

        first = first / (1.0 - ops.power(self.beta_1, update))
        second = second / (1.0 - ops.power(self.beta_2, update))
        self._decrease(variable, index, first / (ops.sqrt(second) + self.epsilon), learning_rate)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }


OPTIMIZERS = {"sgd": Momentum, "adamw": AdamW}

DEFAULTS: dict[str, Any] = {
    **default_config().optimizer.to_dict(),
    "ema_decay": default_config().ema_decay,
}


def build_optimizer(
    config: Mapping[str, Any],
    model: keras.Model | None = None,
    starts: Mapping[str, int] | None = None,
) -> keras.optimizers.Optimizer:
    """Returns the optimizer that `config` describes.

    Args:
        config: `ml_collections.ConfigDict` or dict with any of the keys `optimizer.*` and
            `ema_decay` of `training.config_keys.KEYS`; total_steps is required. The decay of the
            weights is relative to the rate, which is Table 3's convention.
        model: that it will train, whose depth a `layer_decay` is told by.
        starts: {path of a variable: the first update that changes it}.

    Raises:
        ValueError: for an unknown key, optimizer or schedule, without total_steps, or for a
            layer_decay without a model.
    """
    given = dict(config)
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise ValueError(
            f"Optimizer: unknown key {', '.join(unknown)}. Expected keys: {', '.join(DEFAULTS)}."
        )
    config = DEFAULTS | given
    if config["name"] not in OPTIMIZERS:
        raise ValueError(
            f"Optimizer: expected one of {', '.join(OPTIMIZERS)}. Received: {config['name']!r}."
        )
    if config["total_steps"] < 1:
        raise ValueError(
            "Optimizer: total_steps, the length of the learning-rate schedule, must be at least 1. "
            f"Received: total_steps={config['total_steps']}."
        )
    if config["layer_decay"] != 1.0 and model is None:
        raise ValueError("Optimizer: layer_decay needs the model. Received: model=None.")
    arguments: dict[str, Any] = {
        "learning_rate": WarmupDecay(
            config["base_lr"],
            config["total_steps"],
            config["warmup_steps"],
            decay=config["schedule"],
            end_lr=config["end_lr"],
        ),
        "weight_decay": config["weight_decay"],
        "global_clipnorm": config["clip_norm"] or None,
        "first_moment_dtype": config["first_moment_dtype"],
        "use_ema": config["ema_decay"] > 0,
        "ema_momentum": config["ema_decay"],
        "rate_factors": rate_factors(model, config["layer_decay"]) if model else None,
        "first_steps": starts,
    }
    if config["name"] == "sgd":
        return Momentum(momentum=config["momentum"], **arguments)
    return AdamW(beta_1=config["beta_1"], beta_2=config["beta_2"], **arguments)


def optimizer_of(config: ConfigDict, model: keras.Model) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a run.

    Args:
        config: a complete config.
        model: that the run trains, whose weights have their own rates and first updates.

    Raises:
        ValueError, UsageError: if the model has not what `config.freeze` or `layer_decay` asks for.
    """
    settings = config.optimizer.to_dict() | {"ema_decay": config.ema_decay}
    return build_optimizer(settings, model, first_steps(model, config.freeze))
