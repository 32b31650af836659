import numpy as np
import pytest

from keras_vit.layers import MLP


@pytest.fixture
def bare_gelu(to_numpy):
    """Returns a function that applies an MLP of identities, so GELU alone."""

    def apply(values, gelu):
        values = np.asarray(values, "float32")
        mlp = MLP(mlp_dim=1, gelu=gelu)
        mlp.build((None, len(values), 1))
        mlp.set_weights([np.ones((1, 1)), np.zeros(1), np.ones((1, 1)), np.zeros(1)])
        return to_numpy(mlp(values.reshape(1, -1, 1)))[0, :, 0]

    return apply


@pytest.mark.parametrize(
    ("gelu", "expected"),
    [("tanh", [0.8411920, -0.0454023]), ("erf", [0.8413447, -0.0455003])],
)
def test_gelu_flavors(gelu, expected, bare_gelu):
    np.testing.assert_allclose(bare_gelu([1.0, -2.0], gelu), expected, atol=1.5e-7)


def test_gelu_flavors_differ_most_at_2_699(bare_gelu):
    x = np.linspace(-6, 6, 12001)
    difference = np.abs(bare_gelu(x, "tanh") - bare_gelu(x, "erf"))
    assert abs(difference.max() - 4.732e-4) < 1e-6
    assert abs(abs(x[difference.argmax()]) - 2.699) < 2e-2


def test_initial_values(to_numpy):
    mlp = MLP(mlp_dim=400)
    mlp.build((None, 4, 200))
    kernel, bias = (to_numpy(w) for w in mlp.weights[:2])
    bound = np.sqrt(6 / 600)
    assert np.abs(kernel).max() <= bound
    assert abs(kernel.std() / (bound / np.sqrt(3)) - 1) < 0.02
    assert 0.8e-6 < bias.std() < 1.2e-6


def test_unknown_gelu():
    with pytest.raises(ValueError, match="`gelu` must be one of"):
        MLP(mlp_dim=4, gelu="exact")
