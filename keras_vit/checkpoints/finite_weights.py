"""No NaN or infinity is written: what would refuse it is the next reader, far from here."""

import keras


def require_finite(model: keras.Model) -> None:
    """Checks that every weight of a model is a finite number.

    Raises:
        ValueError: otherwise, naming the first of those that are not.
    """
    wrong = [
        weight.path
        for weight in model.weights
        if keras.backend.is_float_dtype(weight.dtype)
        and not bool(keras.ops.all(keras.ops.isfinite(weight)))
    ]
    if wrong:
        raise ValueError(
            f"Expected finite weights. Received: {model.name}, with NaN or infinite values in "
            f"{', '.join(wrong[:3])}{' and others' if wrong[3:] else ''}. Nothing was written: its "
            "training diverged, or its file is damaged."
        )
