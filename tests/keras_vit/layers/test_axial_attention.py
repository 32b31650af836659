import numpy as np
import pytest

from keras_vit.layers import AxialAttention


def normalized(norm, x, to_numpy):
    """Batch normalization of the last axis with the moving statistics."""
    mean, variance = to_numpy(norm.moving_mean), to_numpy(norm.moving_variance)
    scaled = (x - mean) / np.sqrt(variance + 1e-5)
    return scaled * to_numpy(norm.gamma) + to_numpy(norm.beta)


def reference(layer, line, to_numpy):
    """The attention of one line, (length, channels), one query and key at a time."""
    length, channels = line.shape
    groups, size = layer.num_groups, channels // layer.num_groups
    projected = line @ to_numpy(layer.projection.kernel)
    projected = normalized(layer.projection_norm, projected, to_numpy)
    query, key, value = np.split(projected.reshape(length, groups, -1), [size // 2, size], axis=-1)
    distances = np.arange(length)[:, None] - np.arange(length) + length - 1
    of_query, of_key, of_value = np.split(to_numpy(layer.relative), [size // 2, size], axis=-1)
    logits = np.zeros((length, length, groups))
    for i, j in np.ndindex(length, length):
        parts = query[i] * key[j], query[i] * of_query[distances[i, j]]
        parts = np.sum([*parts, key[j] * of_key[distances[j, i]]], axis=-1).ravel()
        parts = normalized(layer.similarity_norm, parts, to_numpy)
        logits[i, j] = parts.reshape(3, groups).sum(0)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    values = np.einsum("ijg,jgc->igc", weights, value)
    values = values, np.einsum("ijg,ijc->igc", weights, of_value[distances])
    gathered = np.stack(values, axis=1)
    gathered = normalized(layer.output_norm, gathered.reshape(length, -1), to_numpy)
    return gathered.reshape(length, 2, channels).sum(1)


@pytest.mark.parametrize("axis", ["height", "width"])
def test_lines_attend_to_themselves(axis, randomized, to_numpy):
    inputs = np.random.default_rng(1).standard_normal((2, 3, 5, 8)).astype("float32")
    layer = randomized(AxialAttention(axis, num_groups=2), inputs.shape)
    lines = inputs.swapaxes(1, 2) if axis == "height" else inputs
    expected = np.stack(
        [[reference(layer, line, to_numpy) for line in example] for example in lines]
    )
    expected = expected.swapaxes(1, 2) if axis == "height" else expected
    np.testing.assert_allclose(to_numpy(layer(inputs)), expected, atol=1e-4)


def test_training_normalizes_with_the_batch(to_numpy):
    inputs = np.random.default_rng(1).standard_normal((4, 3, 5, 8)).astype("float32")
    layer = AxialAttention("width", num_groups=2)
    layer.build(inputs.shape)
    outputs = to_numpy(layer(inputs, training=True))
    # Two normalized summands of unit variance and zero mean.
    np.testing.assert_allclose(outputs.mean((0, 1, 2)), 0, atol=1e-5)
    assert np.abs(to_numpy(layer.projection_norm.moving_mean)).max() > 0
