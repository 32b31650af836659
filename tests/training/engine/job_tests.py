"""Tests of two real processes of a job, for engines' tests with a fixture `start`.

It starts both in a run directory, with the options that each has of its own.
"""

import os
import random
import time

import pytest

from keras_vit.training.io.locks import lock
from tests.training.runs import assert_same, finish, stop, wait_for

STEPS = "--config.total_steps=120"


@pytest.mark.long
def test_stop_loss_and_resumption(start, tmp_path):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    finish(*start(expected))
    step = stop(workdir, 20, *start(workdir))
    processes = start(workdir)
    wait_for(workdir, max(60, step // 10 * 10 + 10), *processes)
    processes[1].kill()
    lost = time.monotonic()
    message = finish(processes[0], status=1)
    assert time.monotonic() - lost < 60 and message.startswith("error: Lost worker 1 (")
    assert message.endswith("Start all workers again with the same command and workdir.")
    finish(*start(workdir))
    assert_same(workdir, expected)


@pytest.mark.long
def test_jobs_that_are_refused(start, tmp_path):
    own = ["--config.seed=1"], ["--config.seed=2", f"--workdir={tmp_path}/b"]
    message, other = (finish(process, status=2) for process in start(tmp_path / "run", *own))
    assert message == other
    assert message.startswith("error: Expected all workers of a job to have the same config, ")
    assert f"--workdir is '{tmp_path}/run' in worker 0 and '{tmp_path}/b' in worker 1" in message
    assert "config.seed is 1 in worker 0 and 2 in worker 1" in message
    assert not list(tmp_path.iterdir())
    with lock(tmp_path):  # The directory of a run that goes on.
        message, other = (finish(process, status=2) for process in start(tmp_path))
    assert message == other
    assert message.startswith(f"error: {tmp_path} is in use by process {os.getpid()} on ")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_killed_five_times(start, tmp_path):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    finish(*start(expected))
    rng = random.Random(5)
    for number in range(5):
        processes = start(workdir)
        wait_for(workdir, 10 + 20 * number, *processes)
        time.sleep(rng.uniform(0.0, 0.05))
        lost = number % 2
        processes[lost].kill()
        finish(processes[1 - lost], status=1)
    finish(*start(workdir))
    assert_same(workdir, expected)
