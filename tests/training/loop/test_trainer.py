import functools
import json
import shutil
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.checkpoints import save_checkpoint
from keras_vit.checkpoints.torch_layouts import TIMM
from keras_vit.training import data
from keras_vit.training.config import default_config
from keras_vit.training.data.tf_data_batches import eval_dataset
from keras_vit.training.engine.update import Report
from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators import classification
from keras_vit.training.io.progress_bar import Progress
from keras_vit.training.loop import trainer
from keras_vit.training.loop.run_directory import drop_events_after
from keras_vit.training.loop.state import LoopState
from keras_vit.training.recipes.model import build_model
from tests.training.runs import final_state, rows


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    config = tiny(total_steps=60, eval_every_steps=20, profile="30:34", report=True)
    config.optimizer.base_lr = 3e-3
    return config, workdir, trainer.train(config, workdir)


def test_directory_and_its_refusal_of_another_config(run):
    config, workdir, last = run
    names = {path.name for path in workdir.iterdir()}
    assert {"config.json", "metrics.csv", "report.html", "model.keras", "best.keras"} <= names
    assert {"tensorboard", "checkpoints"} <= names
    assert not [name for name in names if name.startswith(".")]
    assert list((workdir / "tensorboard").glob("**/*.xplane.pb"))

    saved = json.loads((workdir / "config.json").read_text())
    assert saved["seed"] == config.seed and saved["model"]["patch_size"] == 4
    assert saved["optimizer"]["total_steps"] == saved["total_steps"] == 60
    assert saved["eval_batch_size"] == 16

    found = rows(workdir)
    assert [int(row["step"]) for row in found] == [20, 40, 60]
    assert all(row["eval_count"] == "50" for row in found) and last["step"] == 60
    for name in ("loss", "eval_top1"):
        assert last[name] == pytest.approx(float(found[-1][name]), rel=1e-6)
    seen = {}
    for event in events(workdir / "tensorboard"):
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            seen[event.step, value.tag] = float(tf.make_ndarray(value.tensor))
    for row in found:
        assert seen[int(row["step"]), "loss"] == pytest.approx(float(row["loss"]), rel=1e-5)
    config, workdir, _ = run
    other = config.copy_and_resolve_references()
    other.batch_size = 8
    files = sorted(workdir.rglob("*"))
    with pytest.raises(UsageError, match="batch_size: 16 -> 8"):
        trainer.train(other, workdir)

    def focal(model, batch):
        return model(batch["image"])[:, 0]

    message = r"with: those of the config\. Received: \{'losses': 'focal'\}"
    with pytest.raises(UsageError, match=message):
        trainer.train(config, workdir, losses=focal)
    # Without an address, which another process does not have.
    with pytest.raises(UsageError, match=r"'losses': 'focal\(gamma=2\)'"):
        trainer.train(config, workdir, losses=functools.partial(focal, gamma=2))
    with pytest.raises(UsageError, match=r"Expected a `keras_vit\.optimizers.*Received: a Adam"):
        trainer.train(config, workdir, optimizer=lambda _: keras.optimizers.Adam())
    assert sorted(workdir.rglob("*")) == files


def test_own_objects_that_measure_something_else_are_refused(run, tmp_path):
    config, _, _ = run

    def mean(model, batch):
        return keras.ops.mean(model(batch["image"]))

    norm = types.SimpleNamespace(names=("norm",), every_steps=4, distributed=False)
    norm.run = lambda model: {"norms": 1.0}
    with pytest.raises(ValueError, match=r"shape \(batch,\).* Received: shape \(\)\."):
        trainer.train(config, tmp_path / "mean", losses=mean)
    with pytest.raises(UsageError, match=r"list: norm\. Received: norms\."):
        trainer.train(config, tmp_path / "norm", evaluators=[norm])


def test_a_row_is_the_mean_since_the_row_before_and_the_first_has_no_speed(caplog):
    run = object.__new__(trainer._Run)
    run.engine = types.SimpleNamespace(learning_rate=0.1)
    run.state = LoopState(np.zeros(8), None)
    for loss in (2.0, 5.0):
        run.state.add(4, Report(loss, 0.5, save=False, stop=False, bad_step=-1))
        row = {"loss": loss, "learning_rate": 0.1, "gradient_norm": 0.5, "images_per_second": 7}
        assert run._summary(7) == row
    caplog.set_level("INFO", "keras_vit")
    with Progress(100, 0, 8) as shown:
        for step in (25, 50):
            shown.advance(step, 5.0, 1.0)
            shown.log({"loss": 1.0, "images_per_second": shown.images_per_second()})
        shown.log({"loss": 1.0, "eval_top1": 0.75}, {"top-1 accuracy": "75.00 %"})
        caplog.set_level("DEBUG", "keras_vit")
        shown.log({"loss": 1.0, "eval_top1": 0.75, "images_per_second": 40.0})
    # Half a minute has not passed.
    assert caplog.messages == [
        "step 25/100  loss 1",
        "step 50/100  loss 1  40 images/s  top-1 accuracy 75.00 %  left 00:00:10",
        "step 50/100  loss 1  eval_top1 0.75  images_per_second 40  left 00:00:10",
    ]


def test_people_read_the_metric_that_is_compared_and_few_shot():
    run, values = object.__new__(trainer._Run), {"eval_loss": 2.5, "eval_count": 9}
    run.config = default_config()
    found = values | {"eval_top1": 0.5, "eval_top5": 1.0, "digits_5shot": 0.25}
    assert run._in_words(found) == {"top-1 accuracy": "50.00 %", "digits_5shot": "0.25"}
    run.config.masked.target = "mean_color"
    assert run._in_words(values) == {"loss of the evaluation": "2.5"}


def test_saved_models_are_the_average_that_was_evaluated(run):
    config, workdir, last = run
    split = data.open(config.dataset, config.eval_split, config.data_dir)
    dataset = eval_dataset(split, split.preprocess(config.eval_preprocess), batch_size=8)
    models = [keras.saving.load_model(workdir / f"{name}.keras") for name in ("model", "best")]
    result, best = (classification.evaluate(model, dataset) for model in models)
    assert result["count"] == 50 and result["top1"] == pytest.approx(last["eval_top1"])
    assert result["loss"] == pytest.approx(last["eval_loss"], rel=1e-5)
    assert best["top1"] == pytest.approx(max(float(row["eval_top1"]) for row in rows(workdir)))
    kernel, state = models[0].get_layer("head").kernel.numpy(), final_state(workdir)
    alike = [value for value in state.values() if np.shape(value) == kernel.shape]
    # The weight, its average and its two moments: the model holds the average alone.
    assert len(alike) == 4 and sum(np.array_equal(kernel, value) for value in alike) == 1
    assert not np.array_equal(kernel, state["head/kernel"])


@pytest.mark.parametrize("classes", [1, 12, None])
def test_a_model_of_other_classes_or_other_data_leaves_nothing(tiny, digits, tmp_path, classes):
    config = tiny()
    # Without a head, its representation has as many numbers as there are classes.
    config.model.update(num_classes=classes, hidden_size=10)
    with pytest.raises(UsageError, match=r"num_classes: expected 10, the classes of digits"):
        trainer.train(config, tmp_path / "run")
    with pytest.raises(UsageError, match=r"config\.dataset=digits"):
        trainer.train(tiny(dataset="cifar10"), tmp_path / "run", dataset=digits)
    assert not (tmp_path / "run").exists()


def test_start_from_a_checkpoint(run, tiny, tmp_path):
    file = run[1] / "model.keras"
    config = tiny(checkpoint=str(file))
    model, trained = build_model(config, num_classes=7), keras.saving.load_model(file)
    start = [m.get_layer("embedding").get_weights()[0] for m in (model, trained)]
    np.testing.assert_array_equal(*start)
    np.testing.assert_array_equal(model.get_layer("head").kernel, np.zeros((16, 7)))
    config.checkpoint_head = "keep"
    kept = build_model(config, num_classes=10)
    np.testing.assert_array_equal(*(m.get_layer("head").kernel for m in (kept, trained)))
    for config.checkpoint in (str(file.parent), str(file)):
        for names in ("9876543210", "987"):
            with pytest.raises(UsageError, match=r"classes of the head .* 0, 1, .*: 9, 8, "):
                build_model(config, num_classes=len(names), class_names=[*names])
    # A folder of timm's, of the same classes.
    save_checkpoint(kept, tmp_path / "model.safetensors", TIMM)
    stated = {"label_names": [*"ABCDEFGHIJ"], "mean": 0.5, "std": 0.5}
    stated["model_args"] = {"num_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    config.checkpoint = str(tmp_path)
    for names in ("ABCDEFGHIJ", "abcdefghij", "0123456789"):
        assert build_model(config, 10, [*names]).class_names == tuple(names)
    for names in ("JIHGFEDCBA", "jihgfedcba", "bCAdefghij"):
        with pytest.raises(UsageError, match=rf"classes of the head .* A, B, .*: {names[0]}, "):
            build_model(config, 10, [*names])


def test_precision_is_that_of_the_run_only(tiny, tmp_path):
    before = keras.config.dtype_policy()
    config = tiny(total_steps=0, epochs=0.1, precision="mixed_bfloat16", eval_split="")
    assert trainer.train(config, tmp_path)["step"] == round(0.1 * 1438 / 16)
    assert keras.config.dtype_policy() == before and not (tmp_path / "best.keras").exists()
    model = keras.saving.load_model(tmp_path / "model.keras")
    assert model.get_layer("head").kernel.dtype == "float32"


def write(folder, steps):
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in steps:
            tf.summary.write("loss", tf.constant(step / 2), step=step)
    writer.close()


def events(folder):
    records = tf.data.TFRecordDataset([str(file) for file in folder.glob("events*")])
    found = (tf.compat.v1.Event.FromString(record.numpy()) for record in records)
    return [event for event in found if event.summary.value]


def test_events_after_the_step_are_dropped_and_half_ones(tmp_path, caplog):
    drop_events_after(tmp_path / "tensorboard", 0)
    assert not (tmp_path / "tensorboard").exists()
    for steps, last, left in (([10, 20, 30], 20, [10, 20]), ([30, 40, 50], 40, [10, 20, 30, 40])):
        write(tmp_path, steps)
        drop_events_after(tmp_path, last)
        assert sorted(event.step for event in events(tmp_path)) == left
    shutil.rmtree(tmp_path)  # Half an event goes, and whole files stay as they are.
    write(tmp_path, [10, 20])
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for left in (content, content + content[-30:-7]):
        file.write_bytes(left)
        drop_events_after(tmp_path, 20)
        assert file.read_bytes() == content
    caplog.clear()
    file.write_bytes(content[:-5])
    drop_events_after(tmp_path, 20)
    assert [event.step for event in events(tmp_path)] == [10] and not caplog.messages
    assert list(tmp_path.iterdir()) == [file]
    damaged = bytearray(file.read_bytes())
    damaged[-5] ^= 1
    file.write_bytes(damaged)
    drop_events_after(tmp_path, 20)
    assert f"{file} is damaged: TensorBoard loses what follows its first 1 events" in caplog.text
    copies = [tmp_path / f"{file.name}.bak", tmp_path / f"my-{file.name}"]  # A copy is its owner's.
    for each in (file, *copies):
        each.write_bytes(content)
    drop_events_after(tmp_path, 5)
    assert {copy.read_bytes() for copy in copies} == {content} != {file.read_bytes()}
