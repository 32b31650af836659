"""The variables of a model that no update changes: seeds, and weights that are frozen."""

import keras


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a seed generator."""
    return variable.name == "seed_generator_state"


def frozen_weights(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights that do not train, in the order of `model.non_trainable_variables`.

    Raises:
        ValueError: if the model keeps running statistics, which no engine updates.
    """
    trained_once = {
        id(variable) for layer in model._flatten_layers() for variable in layer._trainable_variables
    }
    frozen = [variable for variable in model.non_trainable_variables if not is_seed(variable)]
    others = [variable.path for variable in frozen if id(variable) not in trained_once]
    if others:
        raise ValueError(
            "The trainer updates trainable variables only; expected a model without running "
            f"statistics. Received non-trainable variables: {', '.join(others)}."
        )
    return frozen
