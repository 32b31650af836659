import numpy as np
import pytest

from keras_vit.layers import (
    LearnedPosition2D,
    RelativePosition,
)


def test_two_dimensional_table(to_numpy):
    layer = LearnedPosition2D((2, 3))
    layer.build((None, 7, 4))
    rng = np.random.default_rng(0)
    columns, rows, first = (
        rng.standard_normal(shape).astype("float32") for shape in ((3, 2), (2, 2), (1, 1, 4))
    )
    layer.set_weights([columns, rows, first])
    table = to_numpy(layer.table())
    np.testing.assert_array_equal(table[0, 0], first[0, 0])
    for row in range(2):
        for column in range(3):
            expected = np.concatenate([columns[column], rows[row]])
            np.testing.assert_array_equal(table[0, 1 + 3 * row + column], expected)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_relative_logits_are_those_of_the_distance(tokens, randomized, to_numpy):
    query = np.random.default_rng(0).standard_normal((3, 2, tokens, 4)).astype("float32")
    layer = randomized(RelativePosition(), (None, 2, tokens, 4))
    table = to_numpy(layer.embedding)
    assert table.shape == (2 * tokens - 1, 4)
    expected = np.empty((3, 2, tokens, tokens), "float32")
    for q in range(tokens):
        for k in range(tokens):
            expected[..., q, k] = query[:, :, q] @ table[q - k + tokens - 1]
    np.testing.assert_allclose(to_numpy(layer(query)), expected, atol=1e-6)
    np.testing.assert_allclose(to_numpy(layer(query[:, :, :1])), expected[:, :, :1], atol=1e-6)
