"""Runs that are killed or stopped end as if they had not been."""

import signal

import pytest

from keras_vit.training.loop import trainer
from tests.training.runs import KILLS, kill_at_random, rows, stop, wait_for


@pytest.fixture(scope="module")
def uninterrupted(tiny, tmp_path_factory):
    """The directory of a run that nothing disturbed."""
    workdir = tmp_path_factory.mktemp("uninterrupted")
    trainer.train(tiny(), workdir)
    return workdir


# Stands still when the first row of metrics is to be written, after step 12.
STANDS_STILL = """
import sys, time
from keras_vit.training.commands.train import main
from keras_vit.training.loop.run_directory import RunDirectory
RunDirectory.log = lambda *_: time.sleep(600)
main(sys.argv[1:])
"""


@pytest.mark.long
def test_killed_once(tiny, launch, train_command, tmp_path, final_state, assert_same):
    short = {
        "total_steps": 24,
        "eval_split": "",
        "checkpoint_every_steps": 8,
        "log_every_steps": 12,
    }
    options = [f"--config.{key}={value}" for key, value in short.items()]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = launch("-c", STANDS_STILL, *train_command(killed, *options)[2:])
    trainer.train(tiny(**short), whole)
    wait_for(killed, 8, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not rows(killed) and not (killed / "model.keras").exists()
    trainer.train(tiny(**short), killed)
    assert_same(final_state(killed), final_state(whole))
    assert rows(killed) == rows(whole) and len(rows(whole)) == 2


@pytest.mark.parametrize("kills", KILLS)
def test_killed(
    kills, uninterrupted, tiny, launch, train_command, tmp_path, final_state, assert_same
):
    kill_at_random(lambda workdir: launch(*train_command(workdir)), tmp_path, kills)
    assert trainer.train(tiny(), tmp_path)["step"] == 200
    state = final_state(tmp_path)
    assert_same(state, final_state(uninterrupted))
    assert any(name.startswith("optimizer/") for name in state)
    assert rows(tmp_path) == rows(uninterrupted)
    assert len(rows(tmp_path)) == 200 // 20


@pytest.mark.long
def test_stopped_by_a_scheduler(
    uninterrupted, tiny, launch, train_command, tmp_path, final_state, assert_same
):
    process = launch(*train_command(tmp_path, "--config.checkpoint_every_steps=50"))
    assert 50 <= stop(tmp_path, 50, process) < 200
    trainer.train(tiny(), tmp_path)
    assert_same(final_state(tmp_path), final_state(uninterrupted))
