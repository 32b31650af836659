"""A state from before masks were functions of the place in the global batch is told of."""

import keras
import pytest

from tests.tiny_vit import tiny_vit
from training import config_keys
from training.engines.tensorflow import engine as tensorflow
from training.recipes.losses import build_loss
from training.recipes.optimizers import build_optimizer


@pytest.fixture
def restored(tmp_path):
    """Returns a function that restores a state, or saves the first one."""

    def engine(accumulation_steps=2, dropout_rate=0.1, first=False):
        keys = {"dataset": "digits", "batch_size": 8, "total_steps": 3}
        config = config_keys.complete({**keys, "accumulation_steps": accumulation_steps})
        keras.utils.set_random_seed(0)
        result = tensorflow.TensorFlowEngine(config)
        result.build(
            lambda: tiny_vit(num_layers=1, dropout_rate=dropout_rate),
            lambda _: build_optimizer({"total_steps": 3}),
            build_loss("softmax"),
        )
        numbers = result.restore(tmp_path)
        if first:
            result.save({})
        return numbers

    return engine


def test_only_where_masks_change(restored, monkeypatch, caplog):
    with monkeypatch.context() as older:
        older.setattr(tensorflow, "MASKS", "unknown")
        assert restored(first=True) is None
    assert not caplog.text
    restored(accumulation_steps=1)
    restored(dropout_rate=0.0)
    assert not caplog.text
    restored()
    (line,) = caplog.text.splitlines()
    assert "step 0 was saved by an earlier version, which drew other dropout masks" in line


def test_not_for_states_of_now(restored, caplog):
    restored(first=True)
    assert restored()
    assert not caplog.text
