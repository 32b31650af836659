from types import SimpleNamespace

import numpy as np
import pytest
from ml_collections import ConfigDict
from scipy import optimize, special
from sklearn.metrics import log_loss

import keras_vit
from benchmarks.errors_in_runtimes import with_noise
from keras_vit import export
from keras_vit.training.config import schema
from keras_vit.training.errors import UsageError
from keras_vit.training.inference.open_model import open_source
from keras_vit.training.loop import trainer
from keras_vit.training.tasks import TASKS
from keras_vit.training.tasks.classification.calibration import (
    best_temperature,
    calibration_error,
    least_confidence,
)
from tests.tiny_vit import tiny_vit


def answers(count=400, scale=3.0):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(count, 4))
    labels = np.array([rng.choice(4, p=each) for each in special.softmax(logits, axis=1)])
    return (scale * logits).astype("float32"), labels


def test_the_temperature_has_the_least_cross_entropy():
    logits, labels = answers()

    def entropy(temperature):
        return log_loss(labels, special.softmax(logits / temperature, axis=1), labels=range(4))

    found = best_temperature(logits, labels)
    best = optimize.minimize_scalar(entropy, bounds=(0.1, 20), method="bounded")
    assert found == pytest.approx(best.x, rel=1e-3) and 2.5 < found < 3.5
    assert best_temperature(logits / found, labels) == pytest.approx(1, rel=1e-4)


def test_no_temperature_is_told_of_images_that_are_all_right(caplog):
    images, rows = np.zeros((3, 2, 2, 3)), np.eye(4)[[0, 1, 2]]
    batch = {"image": images, "label": rows, "counted": np.ones(3)}
    of_images = SimpleNamespace(predict_on_batch=lambda _: rows)
    source = SimpleNamespace(interface=SimpleNamespace(class_names=None), model=of_images)
    dataset = SimpleNamespace(class_names=None, name="data")
    config = ConfigDict({"calibration": {"temperature": True, "accuracy": 0.0}})
    assert TASKS[0].finish(source, config, [batch], dataset) == {}
    assert "none can be told, all is right on 3 held-out images" in caplog.text
    assert "expected 100 held-out images or more. Received: 3," in caplog.text
    assert "95 % is known to be in 39.6 to 99.8 % alone" in caplog.text
    caplog.clear()
    TASKS[0].finish(source, config, [batch] * 34, dataset)
    assert "held-out images or more" not in caplog.text
    of_images.activation = "softmax"
    config.calibration.update(temperature=False, accuracy=0.5)
    assert TASKS[0].finish(source, config, [batch], dataset) == {}
    assert "every answer is as good. None is refused." in caplog.text


def test_both_heads_of_a_distilled_model_are_divided():
    model = with_noise(tiny_vit(classifier="distilled"))
    images = np.random.default_rng(0).uniform(-1, 1, (20, *model.input_shape[1:]))
    images = images.astype("float32")
    before = model.predict(images, verbose=0)
    rows = np.eye(5)[np.random.default_rng(1).integers(0, 5, 20)]
    source = SimpleNamespace(interface=SimpleNamespace(class_names=None), model=model)
    config = ConfigDict({"calibration": {"temperature": True, "accuracy": 0.0}})
    batch = {"image": images, "label": rows, "counted": np.ones(20)}
    TASKS[0].finish(source, config, [batch], SimpleNamespace(class_names=None, name="data"))
    expected = best_temperature(before, rows.argmax(-1))
    np.testing.assert_allclose(model.predict(images, verbose=0), before / expected, rtol=1e-4)


def test_the_error_is_that_of_its_definition():
    logits, labels = answers()
    probabilities = special.softmax(logits, axis=1)
    confidences, hits = probabilities.max(1), probabilities.argmax(1) == labels
    expected = 0.0
    for low in np.arange(15) / 15:
        inside = (confidences > low) & (confidences <= low + 1 / 15)
        if inside.any():
            gap = abs(hits[inside].mean() - confidences[inside].mean())
            expected += inside.mean() * gap
    error, confident, right = calibration_error(confidences, hits)
    assert error == pytest.approx(expected) and len(confident) == len(right) <= 15
    assert calibration_error(np.ones(4), np.bool_([1, 1, 0, 0]))[0] == 0.5


@pytest.mark.rows(
    ([0.9, 0.8, 0.6, 0.4], [1, 1, 0, 1], 1.0, 0.7),
    ([0.9, 0.8, 0.6, 0.4], [1, 1, 0, 1], 0.75, 0.0),
    ([0.9, 0.8, 0.8, 0.4], [1, 1, 0, 0], 0.6, 0.6),
    ([0.9, 0.8, 0.8, 0.4], [1, 1, 0, 0], 0.9, 0.85),
    ([0.9, 0.8], [0, 1], 0.9, None),
)
def test_the_least_probability_that_has_so_many_right(confidences, hits, accuracy, expected):
    found = least_confidence(np.array(confidences), np.array(hits), accuracy)
    assert found is None if expected is None else found == pytest.approx(expected)


@pytest.mark.long
def test_a_run_ends_calibrated_if_it_is_asked_to(tiny, tmp_path, caplog):
    config = tiny(total_steps=60, eval_every_steps=0, ema_decay=0.0, mixup_p=0.0)
    config.optimizer.base_lr, config.report = 1e-2, True
    run = tmp_path / "run"
    trainer.train(config, run)
    plain = open_source(run)
    # A finished run ends once more with it.
    config.calibration = {"temperature": True, "accuracy": 0.3}
    caplog.clear()
    caplog.set_level("INFO", "keras_vit")
    trainer.train(config, run)
    found = open_source(run)
    images = np.random.default_rng(0).uniform(-1, 1, (16, *plain.model.input_shape[1:]))
    images = images.astype("float32")
    ratio = np.mean(np.abs(plain(images))) / np.mean(np.abs(found(images)))
    np.testing.assert_allclose(found(images) * ratio, plain(images), rtol=1e-3, atol=1e-4)
    (said,) = (each for each in caplog.messages if "the temperature in its head" in each)
    assert f"{ratio:.3g}"[:4] in said and not 0.99 < ratio < 1.01
    (least, *others) = found.model.thresholds
    assert 0 < least < 1 and {*others} == {least} and plain.model.thresholds is None
    assert f"thresholds: {least:.4f}, which refuse" in caplog.text
    page = (run / "report.html").read_text()
    assert "Expected calibration error" in page and f"below the probability {least:.4f}" in page
    best = special.softmax(found(images), axis=1).max(1)
    answered = [bool(each) for each in keras_vit.predict(found.model, images, top=1)]
    assert answered == (best >= least).tolist()
    export.to_tflite(found.model, tmp_path / "m.tflite")
    exported = open_source(tmp_path / "m.tflite")
    assert exported.interface.thresholds == pytest.approx([least] * 10)
    np.testing.assert_allclose(exported((images + 1) / 2), found(images), rtol=1e-3, atol=1e-4)
    config.calibration = {"temperature": False, "accuracy": 0.0}
    trainer.train(config, run)
    assert open_source(run).model.thresholds is None
    np.testing.assert_array_equal(open_source(run)(images), plain(images))


def test_calibration_asks_for_held_out_images_and_softmax():
    usual = {"dataset": "digits", "batch_size": 8, "total_steps": 3}
    for changes in ({}, {"eval_split": "test", "loss": "sigmoid"}):
        with pytest.raises(UsageError, match=r"calibration\.temperature"):
            schema.complete({**usual, **changes, "calibration": {"temperature": True}})
