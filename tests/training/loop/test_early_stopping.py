import shutil
import signal
import types

import keras
import numpy as np
import pytest

from keras_vit.__main__ import main
from keras_vit.training.engine.tensorflow import TensorFlowEngine
from keras_vit.training.errors import Interrupted, UsageError
from keras_vit.training.loop import trainer
from keras_vit.training.loop.interruption import StopRequest
from keras_vit.training.loop.state import BestEvaluation
from keras_vit.training.reporting.metrics_csv import read_metrics
from keras_vit.training.tasks import METRICS
from tests.training.runs import assert_same, rows


@pytest.mark.rows(
    ("eval_top1", [(0.5, 2), (0.4, 1), (0.6, 1), (0.6, 1), (0.5, 1)], [1, 0, 1, 0, 0], 5),
    ("eval_loss", [(0, 2.0), (0, 1.0), (0, 3.0), (0, np.nan)], [1, 1, 0, 0], 4),
    # Of equal accuracies the one of less loss.
    ("eval_top1", [(1, 2.0), (1, 2.0), (1, 1.0), (1, 1.0)], [1, 0, 1, 0], None),
)
def test_evaluations_are_counted_since_the_best(metric, values, better, over):
    metric = METRICS[metric]
    best, never = BestEvaluation(metric, patience=2), BestEvaluation(metric)
    for number, (top1, loss) in enumerate(values, 1):
        found = {"eval_top1": top1, "eval_loss": loss}
        assert best.update(found, number) == never.update(found, number) == better[number - 1]
        best = BestEvaluation(metric, 2, **best.numbers)
        assert best.is_over() == (number == over) and not never.is_over()
    before = best.numbers
    assert best.step == np.flatnonzero(better)[-1] + 1
    assert not best.update({"few_shot/digits_5": 1.0}, 9)
    np.testing.assert_equal(best.numbers, before)


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_that_a_shell_ignores_stops_no_run(ignored):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    with StopRequest() as request:
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert request.received == (0 if ignored else signal.SIGINT)


@pytest.fixture(scope="module", autouse=True)
def at_the_end():
    own = types.SimpleNamespace(names=("last",), every_steps=0, distributed=False)
    own.run, create = lambda model: [("last", 7.0)], trainer.create_evaluators
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "create_evaluators", lambda *parts: [*create(*parts), own])
        yield


@pytest.fixture(scope="module")
def config(tiny):
    # The rate makes the loss worse at once.
    result = tiny(total_steps=100, eval_every_steps=5, log_every_steps=50, ema_decay=0.0)
    result.update(checkpoint_every_steps=0, early_stopping={"patience": 3, "metric": "eval_loss"})
    result.optimizer.update(name="sgd", base_lr=1.0, clip_norm=1.0)
    return result


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    return workdir, trainer.train(config, workdir)


def test_the_run_ends_after_so_many_evaluations(run):
    workdir, metrics = run
    found = rows(workdir)
    losses = [float(row["eval_loss"]) for row in found]
    assert metrics["step"] == int(found[-1]["step"]) == 5 * len(found) < 100
    assert len(losses) - 1 - int(np.argmin(losses)) == 3
    # What is due at the end is so wherever that comes.
    assert [row["last"] for row in found] == [""] * (len(found) - 1) + ["7"]
    last, best = (keras.saving.load_model(workdir / f"{n}.keras") for n in ("model", "best"))
    assert not np.array_equal(last.get_layer("head").kernel, best.get_layer("head").kernel)


@pytest.mark.long
def test_the_best_evaluation_is_handed_over(run, config, tmp_path, caplog):
    caplog.set_level("INFO", logger="keras_vit")
    config_of_run, config = (config.copy_and_resolve_references() for _ in range(2))
    config.hand_over, config.early_stopping.patience = "best", 1
    config.train_split += f"+{config.eval_split}"
    trainer.train(config, tmp_path)
    assert f"images of {config.eval_split}, which is scored, are in train" in caplog.text
    found, best = (keras.saving.load_model(tmp_path / f"{n}.keras") for n in ("model", "best"))
    assert all(map(np.array_equal, found.get_weights(), best.get_weights()))
    losses = {int(row["step"]): float(row["eval_loss"]) for row in rows(tmp_path)}
    step, end = min(losses, key=losses.get), max(losses)
    counted = f"{rows(tmp_path)[-1]['eval_count']} images"
    said = f"has the weights of step {step}, the best: loss {losses[step]:.4g} on {counted}.\n"
    assert f"model.keras {said}" in caplog.text
    before = rows(tmp_path)
    assert trainer.train(config, tmp_path)["step"] == max(losses) and rows(tmp_path) == before
    assert f"already finished, at step {max(losses)}. To train its model further" in caplog.text
    content = bytearray((tmp_path / "best.keras").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "best.keras").write_bytes(content)
    with pytest.raises(ValueError, match=r"best\.keras cannot be loaded as a Keras model"):
        trainer.train(config, tmp_path)
    shutil.copy(run[0] / "model.keras", tmp_path / "best.keras")
    trainer.train(config, tmp_path)
    last = f"has the weights of step {end}, the last: loss {losses[end]:.4g} on {counted}; "
    of_best = f" those of step {step}, the best: {losses[step]:.4g}.\n"
    assert f"{last}not{of_best}" in caplog.text
    trainer.train(config_of_run, run[0])  # The run of the fixture hands over the last.
    losses = {int(row["step"]): float(row["eval_loss"]) for row in rows(run[0])}
    said = f"; best.keras has those of step {min(losses, key=losses.get)}, the best: "
    assert f"{said}{min(losses.values()):.4g}.\n" in caplog.text
    config_of_run.total_steps *= 2
    with pytest.raises(UsageError, match="To train its model further: another --workdir, --con"):
        trainer.train(config_of_run, run[0])


@pytest.mark.long
def test_a_stopped_run_is_ended_or_has_other_steps(config, tmp_path, monkeypatch, caplog, refused):
    caplog.set_level("INFO", logger="keras_vit")
    config = config.copy_and_resolve_references()
    config.update(total_steps=12, eval_every_steps=4, hand_over="best", steps_per_call=1)
    config.early_stopping.patience = 0
    train, run, whole = TensorFlowEngine.train, tmp_path / "run", tmp_path / "whole"

    def stop(engine, batches, count, **requests):
        report = train(engine, batches, count, **requests)
        return report._replace(stop=engine.step == 6)

    for workdir in (run, whole):
        with (
            monkeypatch.context() as patch,
            pytest.raises(Interrupted, match=r"or with --finish to end the run here\.$"),
        ):
            patch.setattr(TensorFlowEngine, "train", stop)
            trainer.train(config, workdir)
    said = refused("evaluate", run) + refused("report", run)
    assert said.count(f"train --workdir={run} --finish ends it now; {run / 'best.keras'} has") == 2
    before = rows(run)
    assert "without config.json" in refused("train", f"--workdir={tmp_path}", "--finish")
    assert "neither" in refused("train", f"--workdir={run}")
    # Fewer steps keep the schedule, more stretch it.
    for total, length in ((8, 12), (24, 24)):
        changed = tmp_path / f"{total}"
        shutil.copytree(run, changed)
        config.update(total_steps=total)
        trainer.train(config, changed)
        assert f"The run ends at step {total} instead of 12." in caplog.text
        rates = dict(read_metrics(changed / "metrics.csv")["learning_rate"])
        assert rates[8] == pytest.approx(0.5 * (1 + np.cos(np.pi * (7 - 5) / (length - 5))))
    config.update(total_steps=5)
    with pytest.raises(UsageError, match=r"at least 6, where .*run stands"):
        trainer.train(config, run)
    config.update(total_steps=12)
    # It ends with the better of its last weights and those of step 4, and is evaluated; a config
    # may stand beside it, in which own operations are registered.
    own, copied = tmp_path / "own.py", tmp_path / "copied"
    shutil.copytree(run, copied)
    text = f"get_config = lambda: ConfigDict({config.to_dict()})"
    own.write_text(f"from ml_collections import ConfigDict\n{text}\n")
    assert main(["train", f"--config={own}", f"--workdir={copied}", "--finish"]) == 0
    assert main(["train", f"--workdir={run}", "--finish"]) == 0
    assert rows(copied) == rows(run)
    losses = dict(read_metrics(run / "metrics.csv")["eval_loss"])
    assert [*losses] == [4, 6] and rows(run)[:-1] == before
    found = keras.saving.load_model(run / "model.keras")
    best = keras.saving.load_model(run / "best.keras")
    same = all(map(np.array_equal, found.get_weights(), best.get_weights()))
    assert same == (losses[4] <= losses[6])
    # The command that began it goes on, with the bits of a run that was not ended.
    trainer.train(config, run)
    trainer.train(config, whole)
    assert_same(run, whole)


@pytest.mark.long
def test_a_resumed_run_ends_where_it_would_have(run, config, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="keras_vit")
    workdir, metrics = run
    train = TensorFlowEngine.train

    def die_in_patience(engine, batches, count, **requests):
        if engine.step == metrics["step"] - 4:
            raise SystemExit
        return train(engine, batches, count, **requests)

    often = config.copy_and_resolve_references()
    often.checkpoint_every_steps = often.steps_per_call = 1
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(TensorFlowEngine, "train", die_in_patience)
        trainer.train(often, tmp_path)
    assert trainer.train(config, tmp_path)["step"] == metrics["step"]
    assert f"Resumed from step {metrics['step'] - 4} of {config.total_steps}." in caplog.text
    for found, expected in zip(rows(tmp_path), rows(workdir), strict=True):
        # Of the updates of a call they are summed in float32, and the calls were shorter.
        for name in ("loss", "gradient_norm"):
            assert float(found.pop(name)) == pytest.approx(float(expected.pop(name)), rel=1e-6)
        assert found == expected
    assert_same(tmp_path, workdir)
