import keras
import pytest

from training import config_keys
from training.engines.base import create_engine, last_good
from training.errors import UsageError


def config(**changes):
    return config_keys.complete({"dataset": "digits", "batch_size": 8, "total_steps": 3, **changes})


def test_the_backend_chooses_the_engine(monkeypatch):
    assert type(create_engine(config())).__name__ == "TensorFlowEngine"
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(UsageError, match=r"expected tensorflow or jax\. Received: 'torch'"):
        create_engine(config())


def test_a_strategy_of_another_engine_is_refused():
    with pytest.raises(UsageError, match=r"one or mirrored or .* with the backend tensorflow"):
        create_engine(config(strategy="sharded"))


def test_last_good():
    assert last_good(None) == "There is no earlier checkpoint."
    assert last_good(0) == "The last good checkpoint is that of step 0."
