import inspect
import json

import keras
import numpy as np
import pytest
from ml_collections import ConfigDict

from keras_vit.learning_rate_schedule import WarmupDecay
from keras_vit.optimizers import OPTIMIZERS, AdamW, Momentum
from keras_vit.training.recipes.optimizer import build_optimizer
from tests.training.runs import finish

RATES = [0.1, 0.1, 0.05, 0.01, 0.02]
FACTOR, FIRST, LIMIT, DECAY, WEIGHT_DECAY, EPSILON = 0.5, 2, 1.0, 0.9, 0.2, 0.1
COSINE = {"base_lr": 0.03, "total_steps": 20_000, "warmup_steps": 500, "decay": "cosine"}
LINEAR = {"base_lr": 8e-4, "total_steps": 517_822, "warmup_steps": 10_000, "decay": "linear"}


def scalar(value=1.0, name="kernel"):
    return keras.Variable(np.float32(value), name=name)


def test_bfloat16_velocity_and_a_norm_of_float16_that_does_not_overflow():
    optimizer, variable, values = Momentum(0.01, first_moment_dtype="bfloat16"), scalar(0.0), []
    for _ in range(3):
        optimizer.apply([keras.ops.cast(0.1, "float32")], [variable])
        values.append(float(variable.numpy()))
    np.testing.assert_allclose(values, [-0.001, -0.00290088, -0.00561475], rtol=2e-6)
    assert optimizer.first_moments[0].dtype == "bfloat16"
    kernel = keras.Variable(np.zeros(4096), dtype="float16", name="kernel")
    optimizer = Momentum(1.0, momentum=0.0, global_clipnorm=1.0)
    optimizer.apply([keras.ops.full((4096,), 8.0, "float16")], [kernel])
    assert np.linalg.norm(kernel.numpy().astype("float32")) == pytest.approx(1.0, rel=1e-3)


class Rates(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return keras.ops.take(keras.ops.convert_to_tensor(RATES, "float32"), step)


def in_numpy(name, gradients):
    """Yields the weights and averages of a bias and of a kernel that is frozen until FIRST.

    The velocity holds no rate, and the epsilon is outside of the corrected root.
    """
    weights, averages = np.ones(2), np.ones(2)
    first, second = np.zeros(2), np.zeros(2)
    for update, gradient in enumerate(gradients):
        released = np.array([True, update >= FIRST])
        gradient = np.where(released, gradient, 0.0)
        gradient = gradient * min(1.0, LIMIT / np.linalg.norm(gradient))
        if name == "sgd":
            step = first = 0.9 * first + gradient
        else:
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            count = np.where(released, update + 1 - np.array([0, FIRST]), 1)
            root = np.sqrt(second / (1 - 0.999**count))
            step = first / (1 - 0.9**count) / (root + EPSILON)
        rate = RATES[update] * released * np.array([FACTOR, 1.0])
        weights = weights - rate * (step + WEIGHT_DECAY * weights * np.array([0.0, 1.0]))
        averages = DECAY * averages + (1 - DECAY) * weights
        yield weights, averages


@pytest.mark.parametrize("other", ["bias", "position_embedding"])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_rates_first_steps_factors_decay_clipping_and_averages(name, other):
    gradients = np.random.default_rng(0).normal(size=(5, 2)) * [[2.0, 20.0]]
    variables = [scalar(name=other), scalar()]
    options = {"weight_decay": WEIGHT_DECAY, "global_clipnorm": LIMIT, "ema_decay": DECAY}
    options |= {"rate_factors": {other: FACTOR}, "first_steps": {"kernel": FIRST}}
    sgd = name == "sgd"
    optimizer = Momentum(Rates(), **options) if sgd else AdamW(Rates(), epsilon=EPSILON, **options)
    optimizer.build(variables)
    for update, (weights, averages) in enumerate(in_numpy(name, gradients)):
        gradient = gradients[update]
        norm = optimizer.apply_reduced([keras.ops.cast(each, "float32") for each in gradient])
        expected = np.linalg.norm(gradient * [1, update >= FIRST])  # Before clipping.
        assert float(norm) == pytest.approx(expected, rel=1e-5)
        for expected in (averages, weights):
            optimizer.swap_averages()
            np.testing.assert_allclose([each.numpy() for each in variables], expected, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name.startswith("keras.")])
def test_classes_of_keras_compute_as_there_and_all_of_their_state_is_in_named_variables(name):
    values = np.random.default_rng(0).normal(size=(7, 3, 4)).astype("float32")
    gradients = [keras.ops.convert_to_tensor(each) for each in values]

    def variables():
        shapes = {"a/kernel": (3, 4), "b/kernel": (3, 4), "b/bias": (12,)}
        return [
            keras.Variable(values[0].reshape(shape), name=key.replace("/", "_"))
            for key, shape in shapes.items()
        ]

    def update(optimizer, trained, steps):
        for step in steps:
            each = [gradients[step], gradients[step - 1], keras.ops.reshape(gradients[step], (12,))]
            optimizer.apply(each, trained)
        return [each.numpy() for each in trained]

    config = {"name": name, "total_steps": 9, "base_lr": 0.1}
    keys = {"momentum", "beta_1", "beta_2"} & inspect.signature(OPTIMIZERS[name]).parameters.keys()
    theirs = {key: {"momentum": 0.9, "beta_1": 0.9, "beta_2": 0.999}[key] for key in keys}
    theirs |= {"adam_weight_decay": 0} if name == "keras.Muon" else {}
    plain = getattr(keras.optimizers, name[6:])(WarmupDecay(0.1, 9), weight_decay=0, **theirs)
    expected = update(plain, variables(), range(1, 7))
    ours, trained = build_optimizer(config), variables()
    before = update(ours, trained, range(1, 4))
    assert len({each.name for each in ours.variables}) == len(ours.variables)
    # As a state holds them.
    again, other = (
        build_optimizer(config),
        [keras.Variable(each, name=v.name) for each, v in zip(before, trained, strict=True)],
    )
    again.build(other)
    for variable, value in zip(again.variables, ours.variables, strict=True):
        variable.assign(value.numpy())
    for found in (update(ours, trained, range(4, 7)), update(again, other, range(4, 7))):
        for one, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, theirs, rtol=1e-5, atol=1e-6)
    for one, two in zip(trained, other, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())


def test_some_of_the_variables_and_those_of_another_model():
    kernel, bias = scalar(), scalar(name="bias")
    optimizer, one = Momentum(0.1, weight_decay=0.5), keras.ops.ones(())
    optimizer.apply([], [])
    with pytest.raises(ValueError, match=r"Call `optimizer.build\(trainable_variables\)` first"):
        optimizer.apply([one])
    with pytest.warns(UserWarning, match=r"Gradients do not exist for variables \['kernel'\]"):
        optimizer.apply([None, one], [kernel, bias])
    assert [float(kernel.numpy()), float(bias.numpy())] == pytest.approx([1.0, 0.9])
    for gradients, variables in (([None] * 2, None), ([one], [scalar()])):
        with pytest.raises(ValueError, match="of the 2 variables that it was built with"):
            optimizer.apply(gradients, variables)


def small_model(*layers):
    model = keras.Sequential([keras.Input((4,)), *layers])
    rng = np.random.default_rng(0)
    return model, rng.normal(size=(16, 4)).astype("float32"), rng.integers(0, 2, 16)


def fit(model, optimizer, images, labels):
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(images, labels, batch_size=8, verbose=0)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="Keras refuses it on JAX.")
def test_layers_freeze_between_two_fits():
    model, *data = small_model(keras.layers.Dense(3), keras.layers.Dense(2))
    fit(model, AdamW(0.1, ema_decay=0.5), *data)
    model.layers[0].trainable = False
    model.layers[0].kernel.assign_add(keras.ops.ones((4, 3)))
    before = [each.numpy() for each in model.weights]
    fit(model, model.optimizer, *data)
    changed = [np.any(each.numpy() != old) for each, old in zip(model.weights, before, strict=True)]
    assert changed == [False, False, True, True]


def test_float8_is_scaled_as_by_keras():
    scales, ours = [], AdamW(0.01, ema_decay=0.9, weight_decay=0.1)
    for optimizer in (ours, keras.optimizers.AdamW(0.01)):
        keras.utils.set_random_seed(0)
        model, images, labels = small_model(keras.layers.Dense(16), keras.layers.Dense(2))
        model.quantize("float8")
        fit(model, optimizer, images[:8], labels[:8])
        scales.append([v.numpy() for v in model.trainable_variables if v.overwrite_with_gradient])
    assert len(scales[0]) == 12
    for left, right in zip(*scales, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5)


def test_constraints_hold_and_layers_of_different_dtypes_are_clipped():
    limited = keras.layers.Dense(2, kernel_constraint=keras.constraints.MaxNorm(0.1))
    model, *data = small_model(keras.layers.Dense(3, dtype="bfloat16"), limited)
    before = [np.array(each.numpy()) for each in model.weights]
    fit(model, AdamW(1.0, global_clipnorm=0.5), *data)
    for weight, old in zip(model.weights, before, strict=True):
        assert np.any(weight.numpy() != old)
    assert np.linalg.norm(model.layers[1].kernel.numpy(), axis=0) == pytest.approx([0.1] * 2)


@pytest.mark.long
def test_averages_of_compiled_steps_and_of_two_devices(launch):
    errors = json.loads(finish(launch("fit_averages")))
    assert errors.keys() == {"plain", "built", "compiled", "mirrored"}
    assert max(errors.values()) < 1e-5


def test_compile_and_fit(tmp_path):
    model, *_ = small_model(keras.layers.Dense(3))
    images = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    labels = np.eye(3, dtype="float32")[np.argmax(images[:, :3], -1)]
    config = ConfigDict({"base_lr": 0.1, "total_steps": 80, "warmup_steps": 5, "ema_decay": 0.5})
    model.compile(build_optimizer(config), keras.losses.CategoricalCrossentropy(from_logits=True))
    history = model.fit(images, labels, batch_size=16, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.3 * history[0]
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert copy.optimizer.get_config() == model.optimizer.get_config()
    assert int(copy.optimizer.iterations.numpy()) == 80
    for one, other in zip(copy.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for average, weight in zip(copy.optimizer.averages, copy.trainable_variables, strict=True):
        np.testing.assert_array_equal(average.numpy(), weight.numpy())
    copy.fit(images, labels, batch_size=16, verbose=0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_configuration_makes_the_same_optimizer(name):
    given = {"weight_decay": 0.1, "ema_decay": 0.5, "rate_factors": {"a": 0.5}}
    given |= {"first_steps": {"b": 2}, "global_clipnorm": 1.0}
    config = OPTIMIZERS[name](0.1, **given).get_config()
    assert config.items() >= given.items()
    assert OPTIMIZERS[name].from_config(config).get_config() == config

    class Own(OPTIMIZERS[name]):
        def __init__(self, *args, scale=1.0, **options):
            super().__init__(*args, **options)
            self._scale = scale

        def get_config(self):
            return super().get_config() | {"scale": self._scale}

    config |= {"scale": 3.0, "name": "own"}
    assert Own.from_config(config).get_config() == config


def test_wrong_arguments():
    for make, options, message in (
        *((AdamW, {"ema_decay": value}, r"ema_decay in \[0, 1\)") for value in (-0.5, 1.0, np.nan)),
        *((AdamW, {"global_clipnorm": value}, "above 0 or None") for value in (0.0, np.nan)),
        (AdamW, {"use_ema": True}, "use_ema"),
        (build_optimizer, {"total_steps": 10, "learning_rate": 0.1}, "unknown key learning_rate"),
        (build_optimizer, {"total_steps": 10, "name": "lion"}, "'sgd', 'adamw'"),
        (build_optimizer, {"total_steps": 10, "name": "keras.Nadam"}, "'keras.Muon'"),
        (build_optimizer, {"total_steps": 9, "name": "keras.Lion", "momentum": 0.5}, "no momentum"),
        (build_optimizer, {"base_lr": 0.1}, "total_steps"),
        (build_optimizer, {"total_steps": 10, "schedule": "step"}, "'cosine', 'linear'"),
        (build_optimizer, {"total_steps": 10, "layer_decay": 0.5}, "needs the model"),
        (build_optimizer, {"total_steps": 10, "warmup_steps": 10}, "warmup_steps=10, total_ste"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            make(options) if make is build_optimizer else make(0.1, **options)


def test_rate():
    for arguments, rates in (
        (COSINE, {0: 0.0, 1: 6e-5, 5_000: 0.0262276612, 20_000: 0.0, 30_000: 0.0}),
        (LINEAR | {"end_lr": 1e-5}, {5_000: 4e-4, 263_911: 4.05e-4, 517_822: 1e-5}),
        ({"base_lr": 0.1, "total_steps": 10}, {0: 0.1}),
    ):
        found = {step: float(WarmupDecay(**arguments)(step)) for step in rates}
        assert found == pytest.approx(rates, rel=1e-6, abs=1e-9)
