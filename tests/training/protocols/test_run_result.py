"""A run is trained once; its result is kept."""

import pytest

from keras_vit.training import data
from keras_vit.training.configs import finetune
from keras_vit.training.errors import Diverged, TrainingError, UsageError
from keras_vit.training.protocols.run_result import RunResult, computed_once, train_run


@pytest.fixture
def digits(data_dir):
    return data.open_dataset("digits", data_dir)


@pytest.fixture
def trainer(monkeypatch):
    """Puts a function in the place of `trainer.train`; returns the work directories it got."""
    from keras_vit.training.loop import trainer

    calls = []

    def put(result):
        def train(config, workdir, dataset):
            calls.append(workdir)
            (workdir / "checkpoints").mkdir(parents=True)
            if isinstance(result, Exception):
                raise result
            (workdir / "metrics.csv").write_text(
                "step,eval_loss,eval_top1,eval_top5,eval_count\n5,,,,\n"
                f"10,{result[0]},{result[1]},{result[2]},{result[3]}\n"
            )

        monkeypatch.setattr(trainer, "train", train)
        return calls

    return put


def test_a_finished_run_is_not_trained_again(trainer, tmp_path, digits):
    config = finetune.get_config("ViT-Ti/16,digits,size=16,steps=10")
    # 131 of 359, as `metrics.csv` rounds it.
    calls = trainer((0.5, 0.3649025, 0.8495822, 359))
    result = train_run(config, tmp_path / "run", digits)
    assert result == RunResult(131 / 359, 305 / 359, 0.5, 359)
    assert train_run(config, tmp_path / "run", digits) == result
    assert calls == [tmp_path / "run"]
    assert not (tmp_path / "run" / "checkpoints").exists()

    # On other data it is another run, unless its owner takes that.
    config.train_split = "train[:50%]"
    with pytest.raises(UsageError, match=r"another config .*train_split"):
        train_run(config, tmp_path / "run", digits)
    config.train_split = "train"
    file = tmp_path / "run" / "result.json"
    file.write_text(
        file.read_text()
        .replace('"examples": 1438', '"examples": 1437')
        .replace(digits.split("train").fingerprint["digest"], "0" * 32)
    )
    with pytest.raises(UsageError, match="train has 1438 examples instead of 1437"):
        train_run(config, tmp_path / "run", digits)
    config.data_changed = "accept"
    assert train_run(config, tmp_path / "run", digits) == result

    config.data_changed = "refuse"
    config.optimizer.base_lr = 0.5
    with pytest.raises(UsageError, match=r"another config \(optimizer\.base_lr: 0\.01 -> 0\.5\)"):
        train_run(config, tmp_path / "run", digits)


def test_divergence_is_a_result_and_other_failures_are_not(trainer, tmp_path, digits):
    config = finetune.get_config("ViT-Ti/16,digits,size=16,steps=10")
    calls = trainer(Diverged("The loss became infinite in step 3."))
    result = train_run(config, tmp_path / "run", digits)
    assert result == RunResult(diverged="The loss became infinite in step 3.")
    assert train_run(config, tmp_path / "run", digits) == result and len(calls) == 1

    trainer(TrainingError("A worker was lost."))
    with pytest.raises(TrainingError, match="worker"):
        train_run(config, tmp_path / "other", digits)
    assert not (tmp_path / "other" / "result.json").exists()


@pytest.mark.parametrize("content", ["", "[]", "\udcff"])
def test_a_damaged_result_is_named(content, tmp_path):
    file = tmp_path / "result.json"
    file.write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=r"result\.json is damaged: .* Delete it to compute it"):
        computed_once(file, dict)
