import types

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.losses import build_loss
from keras_vit.models.image_model import ACTIVATIONS
from keras_vit.training.config import schema
from keras_vit.training.data.run_data import RunData
from keras_vit.training.distillation import Teachers
from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators import classification
from keras_vit.training.evaluators.base import create_evaluators
from keras_vit.training.evaluators.few_shot import open_task
from keras_vit.training.tasks.classification import evaluation


def one_hot(labels, classes):
    return np.eye(classes, dtype=np.float32)[labels]


def evaluated(logits, labels, model=lambda images: images, **settings):
    return classification.evaluate(model, [{"image": logits, "label": labels}], **settings)


def test_counts_of_a_worked_example_classes_in_a_cycle_and_tables():
    # Of each image the label is the first, the fifth, the sixth.
    logits = np.tile(np.arange(9, 2, -1).astype(np.float32), (3, 1))
    result = evaluated(logits, one_hot([0, 4, 5], 7))
    assert (result["count"], result["top1"], result["top5"]) == (3, 1 / 3, 2 / 3)
    log_sum = np.log(np.exp(logits[0].astype(float)).sum())
    assert result["loss"] == pytest.approx(log_sum - (9 + 5 + 4) / 3, abs=1e-6)
    expected = np.zeros((7, 7), int)
    expected[[0, 4, 5], 0] = 1
    np.testing.assert_array_equal(result["confusion"], expected)
    order = evaluation.class_order(["owl", "ant", "bee"], ["ant", "bee", "owl"], "birds")
    assert order == [1, 2, 0]
    logits = np.array([[0, 2, 1], [0, 1, 2], [0, 1, 2]], "float32")  # The model says ant, bee, bee.
    result = evaluated(logits, one_hot([0, 1, 2], 3), classes=order)
    assert result["top1"] == 2 / 3
    np.testing.assert_array_equal(result["confusion"], [[1, 0, 0], [0, 1, 0], [0, 1, 0]])
    confusion = np.array([[3, 1, 0], [0, 0, 0], [2, 1, 2]])
    assert evaluation.per_class(confusion, ["cat", "dog", "owl"]).rows == [
        ("cat", 4, "75.00", "60.00", "dog (1)"),
        ("dog", 0, "–", "0.00", ""),
        ("owl", 5, "40.00", "100.00", "cat (2)"),
    ]


def test_real_counts_any_label_and_leaves_out_images_without(caplog):
    logits = np.tile(np.array([3, 2, 1], np.float32), (4, 1))
    labels = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 0], [0, 1, 0]], np.float32)
    rows = [{"image": logits[i : i + 1], "label": labels[i : i + 1]} for i in range(4)]
    for batches in ([{"image": logits, "label": labels}], rows):
        result = classification.evaluate(lambda images: images, batches)
        assert (result["count"], result["top1"], result["top5"]) == (3, 1 / 3, 1.0)
        # Only the last image has one label.
        np.testing.assert_array_equal(result["confusion"], [[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    assert caplog.text.count("1 image has no label: no figure counts them") == 2


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_probabilities_have_the_loss_of_their_logits(loss, caplog):
    logits = np.random.default_rng(0).normal(0, 3, (6, 5)).astype("float32")
    labels = one_hot([0, 1, 2, 3, 4, 0], 5)
    again = evaluation.logits_of(ACTIVATIONS[loss], loss)
    expected = evaluated(logits, labels, loss=loss)
    found = evaluated(logits, labels, again, loss=loss)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert found["top1"] == expected["top1"]
    # A softmax of 1 has a logit, a sigmoid of 1 has none.
    evaluation.logits_of(np.round, loss)(np.array([1.0]))
    assert ("rounded to 0 or 1" in caplog.text) == (loss == "sigmoid")
    caplog.clear()
    rounded = evaluation.logits_of(np.round, loss)
    for _ in range(2):
        low, high = rounded(np.array([0.0, 1.0]))
        assert np.isfinite(low) and high <= 17.4
    assert caplog.text.count("rounded to 0 or 1: the loss is at least") == 1
    with pytest.raises(ValueError, match=r"Expected probabilities.*values in \[0, 3\]"):
        rounded(np.array([0.0, 3.0]))


@pytest.mark.parametrize("batch_size", [3, 11])
def test_result_does_not_depend_on_batches_or_padding(vit, batch_size):
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (11, 16, 16, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 11)
    logits = vit.predict_on_batch(images)
    hits = np.sum(logits.argmax(1) == labels)
    batches = []
    for start in range(0, 11, batch_size):
        # Padding that would be noticed: other images, with every label.
        image, label = np.full((batch_size, 16, 16, 3), 9.0), np.ones((batch_size, 3))
        count = min(batch_size, 11 - start)
        image[:count] = images[start : start + count]
        label[:count] = one_hot(labels[start : start + count], 3)
        batches.append({"image": image, "label": label, "counted": np.arange(batch_size) < count})
    result = classification.evaluate(vit, batches, loss="sigmoid")
    assert (result["count"], result["top1"], result["top5"]) == (11, hits / 11, 1.0)
    expected = build_loss("sigmoid")(one_hot(labels, 3), logits)
    assert result["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert result["confusion"].sum() == 11 and np.trace(result["confusion"]) == hits


def test_functions_and_hub_modules_are_models_too(vit, tmp_path):
    import tensorflow_hub as hub

    images = np.random.default_rng(1).uniform(-1, 1, (5, 16, 16, 3)).astype(np.float32)
    # Batches of tf.data too, and without masks.
    examples = {"image": images, "label": one_hot([0, 1, 2, 0, 1], 3)}
    batches = tf.data.Dataset.from_tensor_slices(examples).batch(3)
    module, spec = tf.Module(), tf.TensorSpec((None, 16, 16, 3), tf.float32)
    module.model = vit
    module.__call__ = tf.function(lambda x: vit(x, training=False), input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path))

    expected = classification.evaluate(vit, batches)
    for model in (module.__call__, hub.load(str(tmp_path)), hub.KerasLayer(str(tmp_path))):
        found = classification.evaluate(model, batches)
        assert found["top1"] == expected["top1"]
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
        np.testing.assert_array_equal(found["confusion"], expected["confusion"])


def test_errors_name_what_was_expected(vit):
    with pytest.raises(ValueError, match="Expected a model of the data set's 4 classes"):
        evaluated(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="finite logits"):
        evaluated(np.full((1, 2), np.nan), one_hot([0], 2))
    with pytest.raises(ValueError, match="at least one image"):
        classification.evaluate(vit, [])
    with pytest.raises(ValueError, match="each of 2 classes"):
        evaluation.per_class(np.zeros((2, 2)), ["one"])
    with pytest.raises(UsageError, match="some of them share a name"):
        evaluation.class_order(["crane", "crane", "owl"], ["owl", "crane", "crane"], "birds")


def test_the_evaluators_of_a_config_name_what_they_yield(digits, data_dir):
    batch = {
        "image": np.array([[2, 1, 0], [0, 1, 2], [5, 0, 0], [9, 9, 9]], np.float32),
        "label": np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]], np.float32),
        "counted": np.array([1, 1, 1, 0], np.float32),
    }

    def identity(images, training):
        return images

    def make_split_sums(batch_sums, make_dataset, prepare_images=None):
        return lambda: np.asarray(batch_sums(identity, batch), np.float64)

    # Over a split of one batch, with the identity as the model.
    engine = types.SimpleNamespace(make_split_sums=make_split_sums)
    wanted = schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 3})
    assert create_evaluators(wanted, engine, None, [], Teachers(wanted, None)) == []
    wanted.update(eval_split="test", eval_every_steps=7, data_dir=data_dir)
    wanted.update(dict.fromkeys(("train_preprocess", "eval_preprocess"), "decode|value_range"))
    wanted.update(few_shot={"datasets": "digits", "shots": (1, 5), "every_steps": 2})
    tasks = [open_task(digits)]
    parts = engine, RunData(wanted, digits), tasks, Teachers(wanted, digits)
    exact, few_shot = create_evaluators(wanted, *parts)
    assert few_shot.tasks == tasks and (exact.every_steps, few_shot.every_steps) == (7, 2)
    assert (exact.distributed, few_shot.distributed) == (True, False)
    assert few_shot.names == ("few_shot/digits_1", "few_shot/digits_5")
    values = dict(exact.run(None))
    assert tuple(values) == exact.names
    # The third image has no label, the fourth pads the batch.
    assert (values["eval_count"], values["eval_top1"], values["eval_top5"]) == (2, 0.5, 1.0)
    log_sum = np.log(np.exp([2.0, 1.0, 0.0]).sum())
    assert values["eval_loss"] == pytest.approx(log_sum - (2 + 1) / 2, rel=1e-6)
