"""A comparison of models, and a small checkpoint that tests change."""

import numpy as np
import pytest

import keras_vit


@pytest.fixture(scope="session")
def assert_same_weights(to_numpy):
    """Returns a function that compares the weights of two models bit for bit."""

    def check(one, two):
        for mine, theirs in zip(one.weights, two.weights, strict=True):
            np.testing.assert_array_equal(to_numpy(mine), to_numpy(theirs), err_msg=mine.path)

    return check


@pytest.fixture
def positions(to_numpy):
    """Returns a function of a model to its table of position embeddings."""
    return lambda model: to_numpy(model.get_layer("position_embedding").embedding)


@pytest.fixture
def saved(make_vit, tmp_path):
    """The path of a small model's checkpoint: 4 x 4 patches, 5 classes, hidden layer of 12."""
    keras_vit.save_checkpoint(make_vit(representation_size=12), tmp_path / "model.npz")
    return tmp_path / "model.npz"


@pytest.fixture
def edit(saved):
    """Returns a function that writes the checkpoint with other arrays (None removes one)."""

    def edit(**changes):
        with np.load(saved) as file:
            arrays = {**dict(file.items()), **changes}
        np.savez(saved, **{n: a for n, a in arrays.items() if a is not None})
        return saved

    return edit
