import itertools
import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training.engine.tensorflow import TensorFlowEngine
from keras_vit.training.engine.update import generator_states
from tests.tiny_vit import tiny_vit
from tests.training.small_engine import random_batches, small_engine

BATCH = 8
DATA = random_batches(6, BATCH)


def batches(data=DATA):
    return iter(tf.data.Dataset.from_tensor_slices(data).repeat())


def make(dropout=0.0, remat=False, recipe=None, **options):
    options["optimizer"] = {"name": "sgd", "base_lr": 0.05, "clip_norm": 1.0, **(recipe or {})}
    model = {"num_layers": 1, "dropout_rate": dropout, "remat": remat}
    return small_engine(lambda _: tiny_vit(**model), batch_size=BATCH, **options)


def losses_of(steps):
    data = batches()
    return [steps.train(data, 2).loss for _ in range(3)]


@pytest.fixture(scope="module")
def losses():
    return losses_of(make())


def assert_same_weights(one, other, atol=0.0):
    for left, right in zip(one.model.get_weights(), other.model.get_weights(), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=atol)


def test_number_of_steps_per_call_changes_nothing():
    together, apart = make(dropout=0.2), make(dropout=0.2)
    before = [state.numpy() for state in together.update.generators]
    together.train(batches(), 6)
    # Dropout leaves the state of the layers alone.
    np.testing.assert_array_equal([state.numpy() for state in together.update.generators], before)
    data = batches()
    for count in (1, 3, 2):
        apart.train(data, count)
    assert_same_weights(together, apart)


def test_compiling_accumulation_and_rematerialization_change_nothing_but_rounding(losses):
    np.testing.assert_allclose(losses_of(make(jit_compile="on")), losses, atol=1e-5)
    compiled = make(dropout=0.3, jit_compile="on", accumulation_steps=2)
    batch = {name: tf.constant(each[0]) for name, each in DATA.items()}
    hlo = compiled._update.experimental_get_compiler_ir(batch, tf.zeros([2]))("hlo")
    assert f"f32[{BATCH},16,16,3]" in hlo and f"f32[{BATCH // 2},16,16,3]" in hlo
    # XLA writes a bounded dynamic size as <=n and a call out of the program as custom-call.
    assert not re.search(r"\[[\d,]*<=\d", hlo) and "custom-call" not in hlo
    np.testing.assert_allclose(losses_of(make(accumulation_steps=4)), losses, atol=1e-6)
    plain, recomputed = make(dropout=0.3), make(dropout=0.3, remat=True)
    np.testing.assert_allclose(losses_of(plain), losses_of(recomputed), atol=1e-6)
    assert_same_weights(plain, recomputed, atol=1e-6)


def test_generator_states_are_functions_of_seed_update_and_generator():
    arguments = [(seed, tf.constant(k, tf.int64), 4) for seed in (0, 1, 2**32) for k in range(3)]
    states = [np.stack(generator_states(*each)) for each in arguments]
    assert len({tuple(state) for each in states for state in each}) == 36
    np.testing.assert_array_equal(states[1], generator_states(*arguments[1]))
    steps = make(dropout=0.3, accumulation_steps=2)  # Replicas and micro-batches draw their own.
    states = generator_states(0, tf.constant(0), len(steps.update.generators))
    drawn = []

    def loss():
        drawn.append([tuple(each.value.numpy()) for each in steps.update.generators])
        return tf.reduce_sum(steps.model.trainable_variables[0].value)

    for replica, index in itertools.product(range(3), range(2)):
        steps.differentiate(loss, states, replica, index)
    assert len({seed for seeds in drawn for seed in seeds}) == 24


def test_requests_and_the_first_unusable_step_are_reported():
    images = DATA["image"].copy()
    images[3] = np.nan
    steps, data = make(), batches()
    assert steps.train(data, 1)[2:] == (False, False, -1)
    assert steps.train(data, 2, save=True)[2:] == (True, False, -1)
    assert steps.train(data, 3, stop=True)[2:] == (False, True, -1)
    assert steps.train(batches({"image": images, "label": DATA["label"]}), 6).bad_step == 6 + 3
    assert make(loss_limit=0.1).train(batches(), 2).bad_step == 0


def test_mixed_precision_keeps_float32_weights(losses):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        steps = make(recipe={"first_moment_dtype": "bfloat16"})
    finally:
        keras.config.set_dtype_policy(before)
    assert {variable.dtype for variable in steps.model.trainable_variables} == {"float32"}
    assert steps.model.layers[1].compute_dtype == "bfloat16"
    np.testing.assert_allclose(losses_of(steps), losses, atol=0.02)


def test_images_are_prepared_on_the_device():
    raw = {"image": np.uint8(np.clip(DATA["image"] * 50 + 128, 0, 255)), "label": DATA["label"]}
    steps = make(prepare_images=lambda images: tf.cast(images, tf.float32) / 50)
    ready = raw | {"image": np.float32(raw["image"]) / 50}
    expected = make().train(batches(ready), 6).loss
    assert steps.train(batches(raw), 6).loss == pytest.approx(expected, abs=1e-6)


def test_running_statistics_are_refused():
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.BatchNormalization()(inputs)
    model = keras.Model(inputs, keras.layers.Dense(5)(keras.layers.Flatten()(x)))
    with pytest.raises(ValueError, match="moving_mean"):
        small_engine(lambda _: model)


def test_a_replica_gets_its_part_of_a_batch_of_a_size_that_its_graph_knows():
    context = types.SimpleNamespace(num_input_pipelines=1, input_pipeline_id=0)
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    strategy.distribute_datasets_from_function = lambda make: make(context)
    engine = types.SimpleNamespace(strategy=strategy)
    whole = tf.data.Dataset.range(8).batch(4, drop_remainder=True)
    found = TensorFlowEngine._distribute(engine, lambda *_: whole)
    assert found.element_spec.shape == (2,)
    assert [part.tolist() for part in found.as_numpy_iterator()] == [[0, 1], [2, 3], [4, 5], [6, 7]]
