"""Runs that are killed or stopped end as if they had not been."""

import contextlib
import json
import os
import random
import signal
import time

import numpy as np
import pytest

from training.engines.tensorflow.engine import TensorFlowEngine
from training.errors import Interrupted, UsageError
from training.loop import trainer
from training.loop.run_directory import RunDirectory


@pytest.fixture(scope="module")
def uninterrupted(tiny, tmp_path_factory):
    """The directory of a run that nothing disturbed."""
    workdir = tmp_path_factory.mktemp("uninterrupted")
    trainer.train(tiny(), workdir)
    return workdir


def wait_for(workdir, step, process):
    """Waits until the checkpoint of `step` is there."""
    end = time.monotonic() + 500
    while not (workdir / "checkpoints" / f"checkpoint-{step}.index").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.002)


def kill_at_random(process, workdir, rng, first, last):
    """Kills `process` at a random moment after a random checkpoint of steps first to last."""
    wait_for(workdir, rng.randrange(first, last, 10), process)
    time.sleep(rng.uniform(0.0, 0.05))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (workdir / "model.keras").exists()


@pytest.fixture
def interrupt_and_compare(
    uninterrupted, tiny, launch, train_command, tmp_path, final_state, assert_same
):
    def run(kills):
        rng = random.Random(kills)
        for kill in range(kills):
            process = launch(*train_command(tmp_path))
            first = 10 * (1 + 15 * kill // kills)
            kill_at_random(process, tmp_path, rng, first, first + 20)
        assert trainer.train(tiny(), tmp_path)["step"] == 200
        state = final_state(tmp_path)
        assert_same(state, final_state(uninterrupted))
        assert any(name.startswith("optimizer/") for name in state)
        assert rows(tmp_path) == rows(uninterrupted)
        assert len(rows(tmp_path)) == 1 + 200 // 20

    return run


def rows(workdir):
    """Returns the rows of `metrics.csv` without speed, the one column that two runs differ in."""
    lines = (workdir / "metrics.csv").read_text().splitlines()
    return [[value for i, value in enumerate(line.split(",")) if i != 4] for line in lines]


@pytest.mark.long
def test_killed_twice(interrupt_and_compare):
    interrupt_and_compare(2)


@pytest.mark.slow
def test_killed_ten_times(interrupt_and_compare):
    interrupt_and_compare(10)


@pytest.mark.long
def test_stopped_by_a_scheduler(
    uninterrupted, tiny, launch, train_command, tmp_path, final_state, assert_same
):
    process = launch(*train_command(tmp_path, "--config.checkpoint_every_steps=50"))
    wait_for(tmp_path, 50, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 128 + signal.SIGTERM
    message = output.strip().splitlines()[-1]
    assert message.startswith("error: Stopped on request after step ")
    step = int(message.split("step ")[1].split()[0])
    assert 50 <= step < 200
    assert (tmp_path / "checkpoints" / f"checkpoint-{step}.index").exists()
    trainer.train(tiny(), tmp_path)
    assert_same(final_state(tmp_path), final_state(uninterrupted))


def stop_after(step, monkeypatch):
    """Makes runs receive SIGTERM when they log that step."""
    log = RunDirectory.log

    def stopping(self, at, values):
        log(self, at, values)
        if at == step:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(RunDirectory, "log", stopping)


@pytest.mark.long
@pytest.mark.parametrize("recorded", [True, False])
def test_a_run_keeps_the_order_that_it_was_begun_with(
    tiny, tmp_path, final_state, assert_same, monkeypatch, recorded
):
    # Digits have 1438 images: the third step of a batch of 512 begins another epoch.
    options = {"total_steps": 8, "batch_size": 512, "log_every_steps": 2, "steps_per_call": 1}
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    trainer.train(tiny(**options, shuffle="sorted"), expected)
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(Interrupted):
            trainer.train(tiny(**options, shuffle="sorted"), workdir)

    file = workdir / "config.json"
    config = json.loads(file.read_text())
    assert config["shuffle"] == "sorted"
    if not recorded:
        # As runs from before there was a choice.
        del config["shuffle"]
        file.write_text(json.dumps(config))
    with pytest.raises(UsageError, match="shuffle: 'sorted' -> 'full'"):
        trainer.train(tiny(**options, shuffle="full"), workdir)
    trainer.train(tiny(**options), workdir)
    assert_same(final_state(workdir), final_state(expected))
    assert json.loads(file.read_text())["shuffle"] == "sorted"


@pytest.mark.long
def test_blocks_say_that_the_number_of_hosts_changed(tiny, tmp_path, monkeypatch, caplog):
    options = {"total_steps": 8, "log_every_steps": 1, "steps_per_call": 1, "shuffle": "blocks"}
    with monkeypatch.context() as patch:
        save = TensorFlowEngine.save
        of_two = {"hosts": np.array(2.0)}
        patch.setattr(
            TensorFlowEngine,
            "save",
            lambda self, numbers, **more: save(self, {**numbers, **of_two}, **more),
        )
        stop_after(1, patch)
        with pytest.raises(Interrupted):
            trainer.train(tiny(**options), tmp_path)
    for step, warnings in ((2, 1), (8, 0)):
        caplog.clear()
        with monkeypatch.context() as patch, contextlib.suppress(Interrupted):
            stop_after(step, patch)
            trainer.train(tiny(**options), tmp_path)
        said = [record.getMessage() for record in caplog.records]
        assert sum("number of hosts, which was 2 and is 1: of this" in line for line in said) == (
            warnings
        )


@pytest.mark.long
def test_blocks_go_on_from_any_step(tiny, tmp_path, final_state, assert_same, monkeypatch):
    # Digits have 1438 images: a window of blocks, and another from the third step on.
    options = {"total_steps": 8, "batch_size": 512, "log_every_steps": 1, "steps_per_call": 1}
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    trainer.train(tiny(**options, shuffle="blocks"), expected)
    for step in (1, 3, 5):
        with monkeypatch.context() as patch:
            stop_after(step, patch)
            with pytest.raises(Interrupted):
                trainer.train(tiny(**options, shuffle="blocks"), workdir)
    trainer.train(tiny(**options), workdir)
    assert_same(final_state(workdir), final_state(expected))
    assert json.loads((workdir / "config.json").read_text())["shuffle"] == "blocks"
