"""A run in a store resumes as one on a disk does, and fails with one line that says what to do."""

import os
import re
import signal

import pytest
from etils import epath

from keras_vit.training.errors import Interrupted, TrainingError
from keras_vit.training.io.stores import fetched
from keras_vit.training.loop import trainer
from keras_vit.training.loop.run_directory import RunDirectory
from tests.training.runs import rows

OPTIONS = {"total_steps": 60, "checkpoint_every_steps": 20}


@pytest.fixture(scope="module")
def expected(tiny, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("uninterrupted")
    trainer.train(tiny(**OPTIONS), workdir)
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
def test_stopped_and_resumed(ram, tiny, expected, at_step, monkeypatch, final_state, assert_same):
    address = epath.Path(ram()) / "run"
    at_step(40, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted) as stopped:
        trainer.train(tiny(**OPTIONS), str(address))
    assert stopped.value.exit_code == 130
    monkeypatch.undo()
    assert not (address / ".lock").exists()
    trainer.train(tiny(**OPTIONS), str(address))
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
        trainer.train(tiny(**OPTIONS), str(address))
    message = (
        rf"{address}/.* cannot be written in 5 attempts: \[Errno 104\] Connection reset by peer"
    )
    assert re.fullmatch(rf"{message}.* Run the same command again.*", str(caught.value))

    failing_store.fails = lambda number: number % 4 == 0
    trainer.train(tiny(**OPTIONS), str(address))
    with fetched(address) as copy:
        assert_same(final_state(copy), final_state(expected))
