"""Runs that are killed or stopped end as if they had not been, in a store too."""

import os
import re
import signal

import pytest
from etils import epath

from keras_vit.training.errors import Interrupted, TrainingError
from keras_vit.training.io.remote_stores import fetched
from keras_vit.training.loop import trainer
from keras_vit.training.loop.run_directory import RunDirectory
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
    short = {"total_steps": 24, "eval_split": "", "log_every_steps": 12}
    short["checkpoint_every_steps"] = 8
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


# Few enough that no number of a state begins another: TensorFlow lists `ram://` by prefixes.
SHORT = {"total_steps": 60, "checkpoint_every_steps": 20}


@pytest.fixture(scope="module")
def expected(tiny, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("expected")
    trainer.train(tiny(**SHORT), workdir)
    return workdir


@pytest.fixture
def at_step(monkeypatch):
    """Has a function called when runs log a step."""

    def call(step, action):
        log = RunDirectory.log

        def logging(self, at, values):
            log(self, at, values)
            if at == step:
                action()

        monkeypatch.setattr(RunDirectory, "log", logging)

    return call


@pytest.mark.long
def test_stopped_and_resumed_in_a_store(
    ram, tiny, expected, at_step, monkeypatch, final_state, assert_same
):
    address = epath.Path(ram()) / "run"
    at_step(40, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted) as stopped:
        trainer.train(tiny(**SHORT), str(address))
    assert stopped.value.exit_code == 130
    monkeypatch.undo()
    assert not (address / ".lock").exists()
    trainer.train(tiny(**SHORT), str(address))
    assert rows(address) == rows(expected)
    with fetched(address) as copy:
        assert_same(final_state(copy), final_state(expected))


@pytest.mark.long
def test_a_store_that_dies_leaves_the_last_state(
    ram, tiny, expected, at_step, failing_store, final_state, assert_same
):
    address, died = epath.Path(ram()) / "run", []

    def die():
        if not died:
            died.append(True)
            failing_store.fails = lambda number: True

    at_step(40, die)
    with pytest.raises(TrainingError) as caught:
        trainer.train(tiny(**SHORT), str(address))
    message = rf"{address}/.* cannot be written in 5 attempts: \[Errno 104\] Connection reset by "
    assert re.fullmatch(rf"{message}peer.* Run the same command again.*", str(caught.value))

    failing_store.fails = lambda number: number % 4 == 0
    trainer.train(tiny(**SHORT), str(address))
    with fetched(address) as copy:
        assert_same(final_state(copy), final_state(expected))
