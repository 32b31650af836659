import keras
import numpy as np
import pytest
from ml_collections import ConfigDict

from training.recipes.optimizers import AdamW, Momentum, build_optimizer


def scalar(value=1.0, name="kernel"):
    return keras.Variable(np.float32(value), name=name)


class Rates(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rates):
        self.rates = rates

    def __call__(self, step):
        return keras.ops.take(keras.ops.convert_to_tensor(self.rates, "float32"), step)


def run(optimizer, variable, gradients):
    values = []
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")], [variable])
        values.append(float(variable.numpy()))
    return values


def test_velocity_holds_no_rate():
    values = run(Momentum(Rates([0.1, 0.05, 0.01])), scalar(), [1.0, 1.0, 1.0])
    np.testing.assert_allclose(values, [0.9, 0.805, 0.7779], rtol=1e-6)


def test_keras_sgd_differs_under_a_changing_rate():
    sgd = keras.optimizers.SGD(Rates([0.1, 0.05, 0.01]), momentum=0.9)
    np.testing.assert_allclose(run(sgd, scalar(), [1.0] * 3), [0.9, 0.76, 0.624], rtol=1e-6)


def test_bfloat16_velocity():
    optimizer = Momentum(0.01, first_moment_dtype="bfloat16")
    values = np.array(run(optimizer, scalar(0.0), [0.1] * 3))
    np.testing.assert_allclose(values, [-0.001, -0.00290088, -0.00561475], rtol=2e-6)
    assert optimizer.first_moments[0].dtype == "bfloat16"


def test_adamw_step():
    values = run(AdamW(1e-3, weight_decay=0.1), scalar(), [0.5])
    assert values[0] == pytest.approx(0.9989, abs=6e-8)


def test_epsilon_is_outside_the_corrected_root():
    # The first step is rate * g / (|g| + epsilon), so a gradient of epsilon moves half a rate.
    values = run(AdamW(1.0, epsilon=1e-3), scalar(0.0), [1e-3])
    assert values[0] == pytest.approx(-0.5, rel=1e-4)


@pytest.mark.parametrize("name", ["bias", "gamma", "cls", "position_embedding"])
def test_only_kernels_decay(name):
    assert run(AdamW(1e-3, weight_decay=0.1), scalar(name=name), [0.0]) == [1.0]
    assert run(AdamW(1e-3, weight_decay=0.1), scalar(), [0.0]) == [pytest.approx(0.9999)]


def test_average_starts_from_the_weights():
    variable = scalar(2.0)
    optimizer = Momentum(1.0, momentum=0.0, use_ema=True, ema_momentum=0.9)
    optimizer.build([variable])
    run(optimizer, variable, [1.0, 0.0])
    # weights 1, 1; averages 0.9 * 2 + 0.1 = 1.9, then 1.81
    optimizer.swap_averages()
    assert float(variable.numpy()) == pytest.approx(1.81)
    optimizer.swap_averages()
    assert float(variable.numpy()) == pytest.approx(1.0)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_apply_reduced_equals_apply(optimizer):
    rng = np.random.default_rng(0)
    config = {
        "name": optimizer,
        "base_lr": 0.1,
        "total_steps": 5,
        "warmup_steps": 1,
        "weight_decay": 0.1,
        "clip_norm": 1.0,
        "ema_decay": 0.9,
    }
    results = []
    gradients = [rng.normal(size=(3, 2)).astype("float32") for _ in range(4)]
    for method in ("apply", "apply_reduced"):
        variable = keras.Variable(np.ones((3, 2), "float32"), name="kernel")
        instance = build_optimizer(config)
        instance.build([variable])
        for gradient in gradients:
            getattr(instance, method)([keras.ops.convert_to_tensor(gradient)])
        results.append([value.numpy() for value in (variable, *instance.variables)])
    for left, right in zip(*results, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-7)


def test_apply_reduced_returns_the_norm_before_clipping():
    variable = keras.Variable(np.zeros(2, "float32"), name="bias")
    optimizer = Momentum(1.0, momentum=0.0, global_clipnorm=1.0)
    optimizer.build([variable])
    norm = optimizer.apply_reduced([keras.ops.convert_to_tensor(np.array([3.0, 4.0], "float32"))])
    assert float(norm) == 5.0
    np.testing.assert_allclose(variable.numpy(), [-0.6, -0.8], rtol=1e-6)


def test_compile_and_fit(tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    rng = np.random.default_rng(0)
    images = rng.normal(size=(64, 4)).astype("float32")
    labels = np.eye(3, dtype="float32")[np.argmax(images[:, :3], -1)]
    config = ConfigDict({"base_lr": 0.1, "total_steps": 80, "warmup_steps": 5, "ema_decay": 0.5})
    model.compile(build_optimizer(config), keras.losses.CategoricalCrossentropy(from_logits=True))
    history = model.fit(images, labels, batch_size=16, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.3 * history[0]
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert copy.optimizer.get_config() == model.optimizer.get_config()
    assert int(copy.optimizer.iterations.numpy()) == 80
    np.testing.assert_array_equal(
        copy.optimizer.first_moments[0].numpy(), model.optimizer.first_moments[0].numpy()
    )


@pytest.mark.parametrize(
    "config, message",
    [
        ({"total_steps": 10, "learning_rate": 0.1}, "unknown key learning_rate"),
        ({"total_steps": 10, "name": "lion"}, "sgd, adamw"),
        ({"base_lr": 0.1}, "total_steps"),
        ({"total_steps": 10, "schedule": "step"}, "cosine, linear"),
    ],
)
def test_errors(config, message):
    with pytest.raises(ValueError, match=message):
        build_optimizer(config)
