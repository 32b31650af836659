"""Runs that are killed or stopped end as if they had not been."""

import random
import signal
import time

import pytest

from training.loop import trainer


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
