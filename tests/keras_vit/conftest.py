import keras
import pytest

import keras_vit
from tests.keras_vit.small import make_vit

if keras.backend.backend() == "jax":
    import jax

    # These tests compile far longer than they compute.
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def saved(tmp_path):
    """The path of a small model's checkpoint: 4 x 4 patches, 5 classes, hidden layer of 12."""
    keras_vit.save_checkpoint(make_vit(representation_size=12), tmp_path / "model.npz")
    return tmp_path / "model.npz"
