import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.training import tasks
from keras_vit.training.config import schema
from keras_vit.training.data import open_dataset
from keras_vit.training.data.tf_data_batches import eval_dataset
from keras_vit.training.errors import UsageError
from keras_vit.training.inference.open_model import open_source
from keras_vit.training.loop import trainer
from keras_vit.training.loop.state import BestEvaluation, LoopState
from keras_vit.training.tasks import METRICS, TASKS, Metric, Task, task_of
from tests.training.runs import column


class Brightness(Task):
    """Predicts the mean of an image's pixels: labels are not used."""

    metrics = (Metric("error", "mean error", is_share=False, panel="error"),)

    def require_output(self, model, num_classes, dataset):
        if model.output_shape[1:] != (1,):
            raise UsageError(f"Expected one number an image. Received: {model.output_shape}")

    def losses(self, config, split):
        def losses(model, batch):
            return ops.square(errors(model(batch["image"], training=True), batch))

        return losses

    def batch_sums(self, loss):
        def sums(model, batch):
            each = batch["counted"] * errors(model(batch["image"], training=False), batch)
            return ops.stack(
                [ops.sum(ops.square(each)), ops.sum(ops.abs(each)), ops.sum(batch["counted"])]
            )

        return sums

    def means(self, sums):
        square, absolute, count = map(float, sums)
        return {"loss": square / count, "error": absolute / count, "count": int(count)}


def errors(outputs, batch):
    return ops.cast(outputs[:, 0], "float32") - ops.mean(batch["image"], axis=(1, 2, 3))


def test_a_third_task_is_one_class(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "TASKS", (Brightness(),))
    config = tiny(total_steps=20, eval_every_steps=5, ema_decay=0.0, mixup_p=0.0)
    config.early_stopping.metric = "eval_top1"
    with pytest.raises(UsageError, match=r"metric: expected one of eval_error, eval_loss, the met"):
        trainer.train(config, tmp_path / "refused")
    config.early_stopping.metric = ""
    with pytest.raises(UsageError, match=r"Expected one number an image\. Received: \(None, 10\)"):
        trainer.train(config, tmp_path / "refused")
    config.model.num_classes, config.optimizer.base_lr = 1, 1e-2
    trainer.train(config, tmp_path / "run")
    found = {name: column(tmp_path / "run", f"eval_{name}") for name in ("loss", "error", "count")}
    split = open_dataset("digits", config.data_dir).split(config.eval_split)
    batches = eval_dataset(split, split.preprocess(config.eval_preprocess), batch_size=50)
    model = keras.saving.load_model(tmp_path / "run" / "model.keras")
    pairs = [(model(each["image"])[:, 0], np.mean(each["image"], (1, 2, 3))) for each in batches]
    outputs, targets = np.concatenate(pairs, axis=1)[:, : split.num_examples]
    assert found["loss"][-1] < 0.2 * np.mean(targets**2)  # The untrained head gives zeros.
    each = outputs - targets
    assert found["error"][-1] == pytest.approx(np.abs(each).mean(), rel=1e-4)
    assert found["count"][-1] == split.num_examples
    # `keras-vit evaluate` asks the task of the run; `predict` has nothing to show of it.
    source = open_source(tmp_path / "run")
    batches = source.batches(split, config.eval_preprocess, 50)
    measured = source.task.evaluate(source, batches, split.dataset, "softmax").metrics
    assert measured == {name: pytest.approx(found[name][-1], rel=1e-4) for name in found}
    with pytest.raises(UsageError, match="Expected a model that predicts something of photos"):
        source.task.answers(source, np.zeros((1, 1)), None, 5)


def test_keys_metrics_and_choice_of_tasks():
    usual = {"dataset": "digits", "batch_size": 8, "total_steps": 3}
    masked = {"target": "mean_color", "corruption_rate": 0.5}
    for number, changes in enumerate(({}, {"masked": masked})):
        config = schema.complete({**usual, **changes})
        assert task_of(config) is task_of(config.to_dict()) is TASKS[number]
    assert task_of({}) is TASKS[0] and [*METRICS][:2] == ["eval_top1", "eval_top5"]
    top1, loss = METRICS["eval_top1"], METRICS["eval_loss"]
    assert (top1.score(0.5), loss.score(0.5)) == (0.5, -0.5)
    assert (top1.text(0.98765), loss.text(0.98765)) == ("98.77 %", "0.9877")


def test_a_loop_state_goes_on_by_name():
    best = BestEvaluation(METRICS["eval_loss"], since=3)
    best.update({"eval_loss": 0.25}, step=5)
    best.update({"eval_loss": 0.5}, step=6)
    best.model = 17.0
    state = LoopState(np.arange(2.0), best)
    state.sums = {"updates": 3.0, "loss": 1 / 3, "gradient_norm": 6.0}
    arrays = {name: np.array(value, np.float64) for name, value in state.arrays().items()}
    numbers = {"since": 3, "score": -0.25, "loss": 0.25, "step": 5}
    numbers |= {"model": 17, "stale": 1}
    assert {name: float(arrays[f"best/{name}"]) for name in numbers} == numbers
    for evaluations in (True, False):
        other = LoopState(state.data, BestEvaluation(METRICS["eval_loss"], since=9))
        other.restore(arrays, evaluations)
        assert other.sums == state.sums
        expected = best if evaluations else BestEvaluation(METRICS["eval_loss"], since=9)
        np.testing.assert_equal(other.best.numbers, expected.numbers)
    assert state.take_means() == (1 / 9, 2.0) and state.sums == dict.fromkeys(state.sums, 0.0)
