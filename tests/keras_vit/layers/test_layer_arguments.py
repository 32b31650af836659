"""Initial weights of the layers, and the arguments and shapes that they refuse."""

import keras
import numpy as np
import pytest

from keras_vit import layers

BOUND = np.sqrt(3)  # of a uniform distribution, in standard deviations
CUT = 2 / 0.87962566  # of LeCun's normal, cut at two deviations and widened to make up for it
# Layer, input shape, part of the weight's path, standard deviation, bound in deviations.
INITIAL = [
    (lambda: layers.MultiHeadSelfAttention(4), (None, 5, 128), "kernel", 1 / np.sqrt(128), BOUND),
    (lambda: layers.MultiHeadSelfAttention(4), (None, 5, 128), "bias", 0, BOUND),
    (lambda: layers.MLP(400), (None, 4, 200), "kernel", np.sqrt(2 / 600), BOUND),
    (lambda: layers.MLP(2000), (None, 4, 2000), "bias", 1e-6, 6),
    (lambda: layers.PatchEmbedding(256, 8), (None, 32, 32, 3), "kernel", 1 / np.sqrt(192), CUT),
    (lambda: layers.PositionEmbedding((14, 14)), (None, 197, 64), "embedding", 0.02, 6),
    (lambda: layers.LearnedPosition2D((40, 40), False), (None, 1600, 128), "s", 0.02, 6),
    (lambda: layers.RelativePosition(), (None, 12, 197, 64), "embedding", 0.02, 6),
    (lambda: layers.RegisterTokens(8, 1), (None, 197, 512), "registers", 1e-6, 6),
]


@pytest.mark.parametrize(("make", "shape", "name", "deviation", "bound"), INITIAL)
def test_initial_weights(make, shape, name, deviation, bound, to_numpy):
    keras.utils.set_random_seed(0)
    layer = make()
    layer.build(shape)
    found = [to_numpy(weight) for weight in layer.weights if name in weight.name]
    assert found
    for weight in found:
        assert abs(weight.std() - deviation) <= 0.08 * deviation
        assert np.abs(weight).max() <= bound * deviation * (1 + 1e-5)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: layers.MultiHeadSelfAttention(4).build((None, 5, 6)), "multiple of `num_heads`"),
        (lambda: layers.AxialAttention("depth"), "`axis` must be one of"),
        (
            lambda: layers.AxialAttention("width", num_groups=8).build((None, 4, 4, 24)),
            "multiple of twice `num_groups`",
        ),
        (lambda: layers.Dropout(-0.1), "`rate` must lie in"),
        (lambda: layers.Dropout(1.0), "`rate` must lie in"),
        (lambda: layers.MLP(4, gelu="exact"), "`gelu` must be one of"),
        (lambda: layers.SinCosPosition2D((2, 2)).build((None, 5, 6)), "multiple of 4"),
        (lambda: layers.SinCosPosition2D((2, 2)).build((None, 5, 4)), "multiple of 4"),
        (lambda: layers.LearnedPosition2D((2, 3)).build((None, 7, 5)), "even number of channels"),
        (lambda: layers.RelativePosition().build((None, 2, None, 4)), "fixed number of tokens"),
        (lambda: layers.RootPooling("valid"), "`padding` must be one of"),
        (lambda: layers.StandardizedConv2D(1, 1, standardization="batch"), "`standardization`"),
    ],
)
def test_refused(refused, message):
    with pytest.raises(ValueError, match=message):
        refused()
