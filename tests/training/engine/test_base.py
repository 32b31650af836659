import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training.engine import create_engine
from keras_vit.training.errors import TrainingError, UsageError
from tests.tiny_vit import tiny_vit
from tests.training.small_engine import random_batches, small_engine


def engine_of(num_classes=5, **changes):
    changes = {"optimizer": {"first_moment_dtype": "bfloat16"}, **changes}
    return small_engine(lambda _: tiny_vit(num_layers=1, num_classes=num_classes), **changes)


@pytest.fixture
def restored(tmp_path):
    """Returns a function that restores the state of a folder into an engine, and returns both."""

    def restore(num_classes=5):
        engine = engine_of(num_classes)
        return engine, engine.restore(tmp_path)

    return restore


def test_the_backend_chooses_the_engine(monkeypatch):
    config = engine_of().config
    assert type(create_engine(config)).__name__ == "TensorFlowEngine"
    config.strategy = "sharded"
    with pytest.raises(UsageError, match=r"one or mirrored or .* with the backend tensorflow"):
        create_engine(config)
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(UsageError, match=r"expected tensorflow or jax\. Received: 'torch'"):
        create_engine(config)


def test_a_split_without_examples_has_no_sum():
    empty = tf.data.Dataset.from_tensor_slices(random_batches(1, 16)).take(0)
    sums = engine_of().make_split_sums(lambda logits, batch: logits[0], lambda *_: empty)
    with pytest.raises(ValueError, match=r"Expected a split with examples\. Received: none"):
        sums()


def test_a_state_goes_on_with_the_same_bits(restored):
    def update(engine):
        dataset = tf.data.Dataset.from_tensor_slices(random_batches(2, 16)).skip(engine.step)
        return engine.train(engine.make_batches(lambda *_: dataset), 1).loss

    engine, numbers = restored()
    assert (numbers, engine.saved_step) == (None, None)
    update(engine)
    engine.save({"a": np.array(1 / 3)}, wait=False)
    loss = update(engine)
    engine.close()
    again, numbers = restored()
    assert (numbers, again.step, again.saved_step) == ({"a": np.array(1 / 3)}, 1, 1)
    assert update(again) == loss
    for one, other in zip(engine.model.weights, again.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_state_of_another_model_is_refused(restored):
    engine, _ = restored()
    engine.save({})
    with pytest.raises(TrainingError, match=r"step 0 in .* has no head/kernel of shape \(16, 7\)"):
        restored(num_classes=7)
