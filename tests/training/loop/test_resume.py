import os
import re
import signal

import pytest
from etils import epath

from keras_vit.training.errors import Interrupted, TrainingError
from keras_vit.training.io.remote_stores import copied
from keras_vit.training.loop import trainer
from keras_vit.training.loop.run_directory import RunDirectory
from tests.training.runs import KILLS, assert_same, final_state, kill_at_random, rows

# Few enough that no number of a state begins another: TensorFlow lists `ram://` by prefixes.
SHORT = {"total_steps": 60, "checkpoint_every_steps": 20}


@pytest.mark.parametrize("kills", KILLS)
def test_killed(kills, tiny, launch, train_command, tmp_path):
    killed, uninterrupted = tmp_path / "killed", tmp_path / "uninterrupted"
    trainer.train(tiny(), uninterrupted)
    kill_at_random(lambda workdir: launch(*train_command(workdir)), killed, kills)
    assert trainer.train(tiny(), killed)["step"] == 200
    assert_same(killed, uninterrupted)
    assert any(name.startswith("optimizer/") for name in final_state(killed))
    assert rows(killed) == rows(uninterrupted) and len(rows(killed)) == 200 // 20


@pytest.fixture(scope="module")
def expected(tiny, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("expected")
    trainer.train(tiny(**SHORT), workdir)
    return workdir


def at_step(monkeypatch, step, action):
    log = RunDirectory.log

    def logging(self, at, values):
        log(self, at, values)
        if at == step:
            action()

    monkeypatch.setattr(RunDirectory, "log", logging)


@pytest.mark.long
def test_stopped_and_resumed_in_a_store(ram, tiny, expected, monkeypatch):
    address = epath.Path(ram()) / "run"
    for step, number in ((20, signal.SIGTERM), (40, signal.SIGINT)):
        with monkeypatch.context() as patch, pytest.raises(Interrupted) as stopped:
            at_step(patch, step, lambda number=number: os.kill(os.getpid(), number))
            trainer.train(tiny(**SHORT), str(address))
        assert stopped.value.exit_code == 128 + number and not (address / ".lock").exists()
    trainer.train(tiny(**SHORT), str(address))
    assert rows(address) == rows(expected)
    with copied(address) as copy:
        assert_same(copy, expected)


@pytest.mark.long
def test_a_store_that_dies_leaves_the_last_state(ram, tiny, expected, monkeypatch, failing_store):
    address = epath.Path(ram()) / "run"
    with monkeypatch.context() as patch, pytest.raises(TrainingError) as caught:
        at_step(patch, 40, lambda: setattr(failing_store, "fails", lambda number: True))
        trainer.train(tiny(**SHORT), str(address))
    message = rf"{address}/.* cannot be written in 5 attempts: Connection reset by "
    assert re.fullmatch(rf"{message}peer.* Run the same command again.*", str(caught.value))
    failing_store.fails = lambda number: number % 4 == 0
    trainer.train(tiny(**SHORT), str(address))
    with copied(address) as copy:
        assert_same(copy, expected)
