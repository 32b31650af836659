"""SGD with momentum and AdamW as the original trains with them, and their learning rates.

They are Keras optimizers, and differ from Keras's own in what changes the trajectory: the velocity
of `Momentum` holds no learning rate, `AdamW` adds its epsilon outside the bias-corrected root and
decays kernels only, first moments can be stored in bfloat16, and the moving average of the weights
starts from the weights. All work with `compile` and `fit`; a distributed loop calls
`apply_reduced`.
"""

import contextlib
import inspect
import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_vit.type_hints import Tensor

LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule


class Optimizer(keras.optimizers.Optimizer):
    """The base of both optimizers: clipping, averages, factors and first steps of the weights.

    Args:
        learning_rate: float or schedule.
        weight_decay: float, decoupled, relative to the rate, on variables named `kernel`.
        global_clipnorm: float above 0, limit of the norm of all gradients together, or None.
        ema_decay: float in [0, 1), decay of the moving averages of the weights, which start from
            the weights given to `build` and replace them at the end of `fit`; 0 for none.
        first_moment_dtype: dtype that `m` is stored in; it is computed and used in the dtype
            of the variable.
        rate_factors: {path of a variable: factor of its rate}; 1 where none is given.
        first_steps: {path of a variable: the first update that changes it}; 0 where none is given.
            Until then its gradient counts as 0, and its moments start with that update.
        name: of the optimizer.
        **kwargs: of the class of `keras.optimizers` that is trained with, see `OPTIMIZERS`.

    Attributes:
        averages: the moving averages, in the order of the variables; [] without averaging.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        weight_decay: float = 0.0,
        global_clipnorm: float | None = None,
        ema_decay: float = 0.0,
        first_moment_dtype: str = "float32",
        rate_factors: Mapping[str, float] | None = None,
        first_steps: Mapping[str, int] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not 0 <= ema_decay < 1 or not (global_clipnorm is None or global_clipnorm > 0):
            raise ValueError(
                "Optimizer: expected ema_decay in [0, 1), global_clipnorm above 0 or None. "
                f"Received: ema_decay={ema_decay}, global_clipnorm={global_clipnorm}."
            )
        if unknown := kwargs.keys() - inspect.signature(type(self)).parameters.keys():
            raise TypeError(f"{type(self).__name__} takes no {', '.join(sorted(unknown))}.")
        of_keras = {"weight_decay": weight_decay, "global_clipnorm": global_clipnorm, "name": name}
        super().__init__(learning_rate=learning_rate, **of_keras, **kwargs)
        self.ema_decay = ema_decay
        self.first_moment_dtype = first_moment_dtype
        self.rate_factors = dict(rate_factors or {})
        self.first_steps = dict(first_steps or {})
        self.averages: list[keras.Variable] = []

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        # `fit` builds while it traces a step, in which variables have no values.
        with _tensorflow().init_scope() if _tensorflow() else contextlib.nullcontext():
            super().build(variables)
            # A namespace, so that Keras does not track the variables as the optimizer's.
            self._trained = SimpleNamespace(variables=list(variables))
            self.first_moments = self._moments("first", self.first_moment_dtype)
            if self.ema_decay:
                self.averages = [self.add_variable_from_reference(v, "average") for v in variables]
            for variable, average in self._averaged():
                # A copy, as JAX frees the memory of each variable on its own.
                average.assign(ops.copy(variable))

    def _moments(self, name, dtype=None):
        return [
            self.add_variable(each.shape, dtype=dtype or each.dtype, name=f"{name}_moment_{index}")
            for index, each in enumerate(self._trained.variables)
        ]

    def _averaged(self):
        return zip(self._trained.variables, self.averages, strict=False)

    def _once_released(self, variable, value, before):
        """Returns `value` from the first update of a variable on, else `before`."""
        first = self.first_steps.get(variable.path, 0)
        return ops.where(self.iterations >= first, value, before) if first else value

    def apply(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        """Does what Keras's optimizers do; gradients are summed over replicas, then clipped."""
        if not len(grads) or not (self.built or trainable_variables):
            return super().apply(grads)  # Does nothing, or refuses.
        self.build(trainable_variables or [])
        known = self._trained.variables
        given = known if trainable_variables is None else trainable_variables
        found = dict(zip(map(id, given), grads, strict=True))
        missing = [each.path for each in known if found.get(id(each), 0) is None]
        if not found.keys() <= set(map(id, known)) or len(missing) == len(found):
            raise ValueError(
                f"Optimizer: expected gradients of the {len(known)} variables that it was built "
                "with. Received: none, or those of others. Make a new optimizer."
            )
        if missing:
            warnings.warn(f"Gradients do not exist for variables {missing}.", stacklevel=2)
        gradients = [found.get(id(each)) for each in known]
        if _tensorflow() and (context := _tensorflow().distribute.get_replica_context()):
            sums = iter(context.all_reduce("sum", [each for each in gradients if each is not None]))
            gradients = [None if each is None else next(sums) for each in gradients]
        self.apply_reduced(gradients)

    def apply_reduced(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Clips and applies gradients that are already summed over all replicas.

        Call it in replica context (or without a strategy), after `build`: each replica updates
        its own copy of the variables, with no further communication.

        Args:
            gradients: list of tensors, one per variable given to `build`; None leaves it as it is.
                Those of a variable with `overwrite_with_gradient` are values, of which it becomes
                the mean over the replicas.

        Returns:
            Scalar, the global norm of the gradients before clipping.
        """
        strategy = _tensorflow() and _tensorflow().distribute.get_strategy()
        replicas = strategy.num_replicas_in_sync if strategy else 1
        updates = []
        pairs = zip(self._trained.variables, gradients, strict=True)
        for index, (variable, gradient) in enumerate(pairs):
            if gradient is not None and variable.overwrite_with_gradient:
                self.assign(variable, gradient / replicas)
            elif gradient is not None:
                # Frozen weights take no part in the norm, which clips.
                updates.append((index, variable, self._once_released(variable, gradient, 0.0)))
        squares = [ops.sum(ops.square(ops.cast(each, "float32"))) for *_, each in updates]
        norm = ops.sqrt(ops.sum(ops.stack(squares or [0.0])))
        limit = self.global_clipnorm
        scale = limit / ops.maximum(norm, limit) if limit else 1.0
        learning_rate = self.learning_rate
        for index, variable, gradient in updates:
            if limit:
                gradient = gradient * ops.cast(scale, gradient.dtype)
            rate = ops.cast(learning_rate, variable.dtype)
            rate = rate * self.rate_factors.get(variable.path, 1.0)
            self._change(index, variable, ops.cast(gradient, variable.dtype), rate)
            if variable.constraint is not None:
                allowed = variable.constraint(variable)
                self.assign(variable, self._once_released(variable, allowed, variable))
        for variable, average in self._averaged():
            decay = 0.0 if variable.overwrite_with_gradient else self.ema_decay
            self.assign_add(average, (1.0 - decay) * (variable - average))
        self.iterations.assign_add(1)
        return norm

    def _change(self, index, variable, gradient, rate):
        step = self._step(index, variable, gradient)
        if self.weight_decay and variable.name == "kernel":
            step = step + self.weight_decay * variable
        self.assign_sub(variable, self._once_released(variable, rate, 0.0) * step)

    def finalize_variable_values(self, var_list: Sequence[keras.Variable]) -> None:
        """Gives the weights their averages, if there are any, at the end of `fit`."""
        for variable, average in self._averaged():
            if any(variable is each for each in var_list):
                variable.assign(ops.copy(average))

    def swap_averages(self) -> None:
        """Exchanges the weights with their moving averages; calling it twice changes nothing."""
        for variable, average in self._averaged():
            before = ops.copy(variable)
            variable.assign(average)
            average.assign(before)

    def get_config(self) -> dict[str, Any]:
        found = vars(self) | super().get_config()
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, Optimizer)]
        names = [name for kind in kinds for name in inspect.signature(kind).parameters]
        # A class of one's own adds the arguments that it keeps under other names.
        return {name: found[name] for name in names if name in found}


def _tensorflow():
    """Returns TensorFlow if Keras runs on it."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow

    return tensorflow


@keras.saving.register_keras_serializable("keras_vit")
class Momentum(Optimizer):
    """Gradient descent with momentum: `m <- momentum m + g; p <- p - rate (m + decay p)`.

    Args:
        learning_rate: float or schedule.
        momentum: float in [0, 1).
        nesterov: bool, whether the weights follow `momentum m + g` in place of the new `m`.
        **kwargs: of `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        momentum: float = 0.9,
        nesterov: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        self.momentum, self.nesterov = momentum, nesterov

    def _step(self, index, variable, gradient):
        moment = self.first_moments[index]
        velocity = self.momentum * ops.cast(moment, gradient.dtype) + gradient
        self.assign(moment, velocity)
        return self.momentum * velocity + gradient if self.nesterov else velocity


@keras.saving.register_keras_serializable("keras_vit")
class AdamW(Optimizer):
    """Adam with decoupled weight decay: `p <- p - rate (m^ / (sqrt(v^) + epsilon) + decay p)`.

    `m^` and `v^` are the bias-corrected moments. Adam is `weight_decay=0`.

    Args:
        learning_rate: float or schedule.
        beta_1: float in [0, 1), decay of the first moment.
        beta_2: float in [0, 1), decay of the second moment.
        epsilon: float, added to the root of the corrected second moment.
        **kwargs: of `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if not self.built:
            super().build(variables)
            self.second_moments = self._moments("second")

    def _step(self, index, variable, gradient):
        moment, second_moment = self.first_moments[index], self.second_moments[index]
        # The number of this update among those that change the variable, at least 1.
        update = self.iterations + 1 - self.first_steps.get(variable.path, 0)
        update = ops.cast(self._once_released(variable, update, 1), "float32")
        first = self.beta_1 * ops.cast(moment, gradient.dtype) + (1.0 - self.beta_1) * gradient
        second = self.beta_2 * second_moment + (1.0 - self.beta_2) * ops.square(gradient)
        self.assign(moment, first)
        self.assign(second_moment, second)
        # In bfloat16 beta_2 is 1, and what is left of the second moment infinite.
        first = first / ops.cast(1.0 - ops.power(self.beta_1, update), gradient.dtype)
        second = second / ops.cast(1.0 - ops.power(self.beta_2, update), gradient.dtype)
        return first / (ops.sqrt(second) + self.epsilon)


def _of_keras(name):
    """Returns a class of `keras.optimizers` with the clipping, averages and factors of ours."""
    base = getattr(keras.optimizers, name)

    class OfKeras(Optimizer, base):
        __doc__ = f"`keras.optimizers.{name}` with the arguments of `Optimizer` beside its own."
        __signature__ = inspect.signature(base)

        def _moments(self, name, dtype=None):
            return []

        def _change(self, index, variable, gradient, rate):
            if self.weight_decay and variable.name == "kernel":
                self.assign_sub(variable, rate * self.weight_decay * variable)
            self.update_step(gradient, variable, rate)

    return keras.saving.register_keras_serializable("keras_vit", f"keras.{name}")(OfKeras)


# They keep all of their state in variables with names of their own: a run that is killed goes on
# with the same bits.
_OF_KERAS = "Adadelta Adagrad Adam AdamW Adamax Ftrl Lamb Lion Muon RMSprop SGD"
OPTIMIZERS = {"sgd": Momentum, "adamw": AdamW}
OPTIMIZERS |= {f"keras.{name}": _of_keras(name) for name in _OF_KERAS.split()}
