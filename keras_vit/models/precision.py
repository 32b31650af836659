"""Precision: the dtype policy of a model and what it leaves in float32.

Under "mixed_bfloat16" and "mixed_float16" variables are float32 and layers compute in
half precision. Whatever the policy, these are float32: the statistics of normalizations,
the softmax of attention, the representation, the head and the losses.
"""

import keras


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


def state_policy(model: keras.Model, policy: keras.DTypePolicy) -> None:
    """Makes `policy`, which the layers of a model have, that of the model itself."""
    # Set on a model, a policy that quantizes would quantize its layers again.
    if policy.quantization_mode is None:
        model.dtype_policy = policy
