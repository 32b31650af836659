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
    projected = normalized(
        layer.projection_norm, line @ to_numpy(layer.projection.kernel), to_numpy
    )
    projected = projected.reshape(length, groups, 2 * size)
    table = to_numpy(layer.relative)
    half = size // 2
    gathered = np.zeros((length, 2, groups, size))
    for g in range(groups):
        query, key, value = np.split(projected[:, g], [half, size], axis=-1)
        logits = np.zeros((length, length))
        for i in range(length):
            for j in range(length):
                there, back = table[i - j + length - 1], table[j - i + length - 1]
                parts = np.zeros((3, groups))
                parts[:, g] = (
                    query[i] @ key[j],
                    query[i] @ there[:half],
                    key[j] @ back[half:size],
                )
                parts = normalized(layer.similarity_norm, parts.reshape(-1), to_numpy)
                logits[i, j] = parts.reshape(3, groups)[:, g].sum()
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        for i in range(length):
            for j in range(length):
                gathered[i, 0, g] += weights[i, j] * value[j]
                gathered[i, 1, g] += weights[i, j] * table[i - j + length - 1, size:]
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
