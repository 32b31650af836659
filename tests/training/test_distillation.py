"""Distillation beside big_vision's functions, and in runs."""

import json
import pathlib
import shutil
import types
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.models.image_model import classification_head
from keras_vit.training import distillation, distillation_loss
from keras_vit.training.config import schema
from keras_vit.training.data import open_dataset
from keras_vit.training.data.run_data import RunData
from keras_vit.training.distillation import Teachers
from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators.base import create_evaluators
from keras_vit.training.loop import trainer
from keras_vit.training.tasks import task_of
from tests.tiny_vit import tiny_vit
from tests.training.runs import KILLS, assert_same, column, final_state, kill_at_random, rows

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden/distillation.json").read_text())
STUDENT, TEACHER = (np.array(GOLDEN[key], "float32") for key in ("student", "teacher"))


@pytest.mark.parametrize("temperature", [1, 2, 10])
def test_losses_of_big_vision(temperature):
    expected = GOLDEN["losses"][str(temperature)]
    found = distillation_loss("kl", temperature)(TEACHER, STUDENT)
    np.testing.assert_allclose(found, expected["kl"], 1e-4 if temperature == 10 else 1e-5)
    student = tf.constant(STUDENT)
    with tf.GradientTape() as tape:
        tape.watch(student)
        loss = tf.reduce_mean(distillation_loss("kl", temperature)(TEACHER, student))
    assert float(loss) == pytest.approx(expected["kl_mean"], rel=1e-4)
    gradient = tape.gradient(loss, student)
    np.testing.assert_allclose(gradient, expected["kl_mean_gradient"], 1e-4, 1e-6)


def test_hard_and_squared_losses_and_several_teachers():
    expected = GOLDEN["losses"]["1"]
    for kind in ("hard", "l2"):
        np.testing.assert_allclose(distillation_loss(kind)(TEACHER, STUDENT), expected[kind], 1e-5)
    loss, both = distillation_loss("kl", 2.0), GOLDEN["two_teachers"]
    found = sum(loss(np.array(GOLDEN[name], "float32"), STUDENT) for name in both["teachers"])
    assert float(np.mean(found)) == pytest.approx(both["loss"], rel=1e-5)
    with pytest.raises(ValueError, match=r"kind. must be one of"):
        distillation_loss("kll")
    with pytest.raises(ValueError, match=r"temperature above 0\. Received: 0"):
        distillation_loss("kl", 0)


def test_linear_models_on_mixed_images():
    """The teacher sees the mixed image; its logits are not mixed themselves."""
    case = GOLDEN["linear_models_on_mixed_images"]
    kernels = [np.array(case[f"{who}_kernel"], "float32") for who in ("teacher", "student")]
    images = {each["weight"]: np.array(each["images"]) for each in GOLDEN["mixup"]["mixed"]}
    for step in case["steps"]:
        rows = images[step["weight"]].reshape(4, -1).astype("float32")
        student = tf.constant(kernels[1])
        with tf.GradientTape() as tape:
            tape.watch(student)
            loss = distillation_loss("kl", step["temperature"])
            loss = tf.reduce_mean(loss(rows @ kernels[0], tf.matmul(rows, student)))
        assert float(loss) == pytest.approx(step["loss"], rel=1e-4)
        norm = tf.linalg.global_norm([tape.gradient(loss, student)])
        assert float(norm) == pytest.approx(step["gradient_norm"], rel=1e-4)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Returns the file of a classifier of digits, for images of another size than the student's."""
    keras.utils.set_random_seed(5)
    model = tiny_vit(num_classes=10, image_size=24)
    model.class_names, model.license = [*"9876543210"], "CC-BY-NC-4.0"
    file = tmp_path_factory.mktemp("teacher") / "teacher.keras"
    model.save(file)
    return file


def random_images():
    return np.random.default_rng(0).uniform(-1, 1, (3, 16, 16, 3)).astype("float32")


@pytest.mark.rows(*(("soft", t, a) for t in (1, 2, 10) for a in (0.5, 0.9)), ("hard", 1, 0.5))
def test_students_of_two_heads_have_the_losses_of_deit(kind, temperature, alpha, monkeypatch, tiny):
    expected, given = GOLDEN["deit"], np.array(GOLDEN["class_token"], "float32")
    head = classification_head(7, 0.0, distilled=True)
    features = keras.Input((14,))
    heads = keras.Model(features, head(features))
    for layer in heads.layers:
        if layer.weights:
            layer.kernel.assign(np.eye(7))
    both = np.concatenate([given, STUDENT], axis=1)
    np.testing.assert_allclose(heads(both)["logits"], expected["inference"], 1e-5, 1e-6)

    class Student:
        arguments, license = {"classifier": "distilled"}, None

        def up_to(self, names):
            return lambda images, training: {name: heads(images)[name] for name in names}

    distill = {"loss": kind, "temperature": float(temperature), "label_weight": 1 - alpha}
    config = tiny(distill={"teacher": "t", **distill})
    teacher = types.SimpleNamespace(
        output_shape=(None, 7), class_names=None, weights=[], license=None
    )
    opened = types.SimpleNamespace(model=teacher, identity="t")
    monkeypatch.setattr(distillation, "_opened", lambda *_: opened)
    classes = types.SimpleNamespace(num_classes=7, class_names=None, name="seven")
    teachers = Teachers(config, classes)
    monkeypatch.setattr(teachers, "outputs", lambda images: [{"output": TEACHER}])
    base = task_of(config).losses(config, None)
    batch = {"image": both, "label": np.eye(7, dtype="float32")[GOLDEN["labels"]]}
    found = teachers.open(base, Student()).losses(Student(), batch)
    key = f"{kind}_tau{temperature}_alpha{alpha}"
    assert float(np.mean(found)) == pytest.approx(expected[key], rel=1e-4)
    config.distill.label_weight = 0.0
    with pytest.raises(UsageError, match=r"label_weight: expected more than 0.*Received: 0, "):
        Teachers(config, classes).open(base, Student())


def test_a_teacher_of_other_pixels_and_order_of_classes(teacher, tiny, caplog):
    ends = ("block_00", "representation")
    distill = {"features": "block_00=block_00,representation", "features_weight": 2.0}
    distill |= {"teacher": str(teacher), "label_weight": 0.25}
    config = schema.complete(tiny(distill=distill))
    digits = open_dataset("digits", config.data_dir)
    teachers = Teachers(config, digits)
    labeled = np.arange(3, dtype="float32")
    student = tiny_vit(num_classes=10)
    objective = teachers.open(lambda model, batch: labeled, student)
    assert student.license == "CC-BY-NC-4.0"
    assert "teacher.keras, under CC-BY-NC-4.0, which does not allow every use" in caplog.text
    images, model = random_images(), keras.models.load_model(teacher)
    resized = keras.ops.image.resize(images, (24, 24), antialias=True)
    expected = np.array(model(resized))[
        :, [digits.class_names.index(each) for each in model.class_names]
    ]
    (found,) = teachers.outputs(images)
    np.testing.assert_allclose(found["output"], expected, 1e-5, 1e-6)
    losses = objective.losses(student, {"image": images})
    taught = np.array(distillation_loss()(expected, student(images)))
    # The teacher's 6 x 6 patches become the student's 4 x 4; the tokens before them are left out.
    (patches, *_), (whole, *_) = (objective.trained[place : place + 2] for place in (0, 2))
    mine, theirs = student.up_to(ends)(images), model.up_to(ends)(resized)
    grid = keras.ops.reshape(theirs["block_00"][:, 1:], (3, 6, 6, 16))
    grid = np.reshape(keras.ops.image.resize(grid, (4, 4), antialias=True), (3, 16, 16))
    taught += 2 * np.square(mine["block_00"][:, 1:] @ np.array(patches) - grid).mean((1, 2))
    vectors = mine["representation"] @ np.array(whole) - theirs["representation"]
    taught += 2 * np.square(vectors).mean(1)
    np.testing.assert_allclose(losses, 0.25 * labeled + 0.75 * taught, 1e-5)
    assert len(objective.variables) == len(model.weights) and len(objective.trained) == 4


def test_teachers_are_refused(teacher, tiny, tmp_path):
    def refused(message, **distill):
        with pytest.raises(UsageError, match=message):
            trainer.train(tiny(distill=distill), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    other = tmp_path / "other.keras"
    tiny_vit(num_classes=4).save(other)
    refused(
        r"distill.teacher: expected a classifier of the 10 classes of dig.*oth",
        teacher=f"{teacher},{other}",
    )
    refused(r"There is nothing|Received: .*missing", teacher=str(tmp_path / "missing.keras"))
    refused(r"distill.temperature: expected more than 0", teacher=str(teacher), temperature=0.0)
    refused(
        r"distill.temperature: expected config.distill.loss=kl or soft",
        teacher=str(teacher),
        loss="l2",
        temperature=2.0,
    )
    refused(r"distill.loss: expected config.distill.teacher beside it", loss="hard")
    refused(r"expected config.distill.features beside none", teacher=str(teacher), loss="none")
    for features, message in (
        ("block_00=block_9", r"STUDENT=TEACHER, .*block_01, .*Received: block_9"),
        ("encoded=logits", r"two of patches.*encoded of shape .*, 4, 4, 16.*logits of"),
    ):
        refused(message, teacher=str(teacher), features=features)


def test_a_teacher_without_classes_gives_features(tiny, tmp_path):
    teacher, student = tiny_vit(num_classes=None, hidden_size=8), tiny_vit(num_classes=10)
    teacher.save(tmp_path / "encoder.keras")
    distill = {"teacher": str(tmp_path / "encoder.keras"), "loss": "none"}
    distill |= {"features": "block_00=encoded", "label_weight": 0.25}
    config = schema.complete(tiny(distill=distill))
    data = RunData(config)
    teachers = Teachers(config, data.dataset)
    labeled = np.arange(3, dtype="float32")
    objective = teachers.open(lambda model, batch: labeled, student)
    (kernel, _), images = objective.trained, random_images()
    mine = student.up_to(["block_00"])(images)["block_00"][:, 1:] @ np.array(kernel)
    taught = np.square(mine - teacher.up_to(["encoded"])(images)["encoded"][:, 1:]).mean((1, 2))
    losses = objective.losses(student, {"image": images})
    np.testing.assert_allclose(losses, 0.25 * labeled + 0.75 * taught, 1e-5)
    (only,) = create_evaluators(config, mock.Mock(), data, [], teachers)
    assert not any("teacher" in name for name in only.names)


def test_a_run_with_a_teacher_resumes_and_saves_the_student_alone(teacher, tiny, tmp_path):
    settings = {"total_steps": 12, "checkpoint_every_steps": 4, "eval_every_steps": 4}
    settings["distill"] = {"teacher": str(teacher), "temperature": 2.0, "label_weight": 0.5}
    settings["distill"]["features"] = "block_00"
    settings |= {"model": {"classifier": "distilled"}, "log_every_steps": 4}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    trainer.train(tiny(**settings), whole)
    # As if it was killed after its step 8 of 12.
    shutil.copytree(whole, stopped)
    shutil.rmtree(stopped / "checkpoints/checkpoint-12")
    (stopped / "model.keras").unlink()
    content = teacher.read_bytes()
    try:
        keras.utils.set_random_seed(6)
        tiny_vit(num_classes=10).save(teacher)
        with pytest.raises(UsageError, match=r"teacher.keras is another model than when the run"):
            trainer.train(tiny(**settings), stopped)
    finally:
        teacher.write_bytes(content)
    trainer.train(tiny(**settings), stopped)
    assert_same(whole, stopped)
    assert rows(whole) == rows(stopped)
    student = keras.models.load_model(whole / "model.keras")
    assert student.license == "CC-BY-NC-4.0"
    projection = {f"projection_0_0/{leaf}" for leaf in ("kernel", "bias")}
    assert {
        name for name in final_state(whole) if "optimizer/" not in name and "loop/" not in name
    } == {each.path for each in student.weights if "seed" not in each.path} | projection
    # The hits of the teacher by itself, and of equal first classes.
    config = schema.complete(tiny(**settings))
    batches = RunData(config).eval_batches(1, 0)
    hits, agreed, count = 0, 0, 0
    model = keras.models.load_model(teacher)
    order = [
        [*"9876543210"].index(each) for each in open_dataset("digits", config.data_dir).class_names
    ]
    for batch in batches:
        images, counted = batch["image"], np.array(batch["counted"]) > 0
        resized = keras.ops.image.resize(images, (24, 24), antialias=True)
        best = np.array(model(resized))[:, order].argmax(-1)
        own = np.array(student(images)).argmax(-1)
        hits += (best == np.array(batch["label"]).argmax(-1))[counted].sum()
        agreed += (best == own)[counted].sum()
        count += counted.sum()
    assert column(whole, "eval_teacher_top1").tolist() == pytest.approx([hits / count] * 3)
    assert 0 <= column(whole, "eval_teacher_agreement")[-1] <= 1


@pytest.mark.parametrize("kills", KILLS)
def test_killed(kills, teacher, tiny, launch, train_command, tmp_path):
    killed, uninterrupted = tmp_path / "killed", tmp_path / "uninterrupted"
    trainer.train(tiny(distill={"teacher": str(teacher)}), uninterrupted)
    more = f"--config.distill.teacher={teacher}"
    kill_at_random(lambda workdir: launch(*train_command(workdir, more)), killed, kills)
    trainer.train(tiny(distill={"teacher": str(teacher)}), killed)
    assert_same(killed, uninterrupted)
