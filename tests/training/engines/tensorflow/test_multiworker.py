"""Two real worker processes: stopped, bereaved, restarted, and back to the same weights."""

import os
import random
import signal
import time

import pytest

from training.io.locks import lock

pytestmark = pytest.mark.long

STEPS = 120


@pytest.fixture
def start(launch, cluster, train_command):
    """Starts both workers of a job in a directory and returns their processes."""

    def run(workdir, *own):
        """Starts them with the options that each has of its own."""
        options = ["--config.strategy=multiworker", f"--config.total_steps={STEPS}"]
        return [
            launch(*train_command(workdir, *options, *more), environment=environment)
            for environment, more in zip(cluster(2), own or ([], []), strict=True)
        ]

    return run


def wait_for(workdir, step, processes):
    end = time.monotonic() + 500
    while not (workdir / "checkpoints" / f"checkpoint-{step}.index").exists():
        assert all(process.poll() is None for process in processes)
        assert time.monotonic() < end
        time.sleep(0.002)


def finish(processes):
    """Returns the exit status and the last line of every process."""
    outputs = [process.communicate(timeout=500)[0].strip() for process in processes]
    return [
        (process.returncode, output.splitlines()[-1] if output else "")
        for process, output in zip(processes, outputs, strict=True)
    ]


def test_stop_loss_and_resumption(start, tmp_path, final_state, assert_same):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    assert [status for status, _ in finish(start(expected))] == [0, 0]

    processes = start(workdir)
    wait_for(workdir, 20, processes)
    processes[1].send_signal(signal.SIGTERM)
    ends = finish(processes)
    assert [status for status, _ in ends] == [143, 143]
    assert ends[0] == ends[1]
    assert ends[0][1].startswith("error: Stopped on request after step ")
    step = int(ends[0][1].split("step ")[1].split()[0])
    assert (workdir / "checkpoints" / f"checkpoint-{step}.index").exists()

    processes = start(workdir)
    wait_for(workdir, max(60, step // 10 * 10 + 10), processes)
    processes[1].kill()
    lost = time.monotonic()
    (status, message), _ = finish(processes)
    assert time.monotonic() - lost < 60
    assert status == 1
    assert message.startswith("error: Lost worker 1 (localhost:")
    assert message.endswith("Start all workers again with the same command and workdir.")

    assert [status for status, _ in finish(start(workdir))] == [0, 0]
    assert_same(final_state(workdir), final_state(expected))


def test_workers_that_were_started_differently(start, tmp_path):
    (status, message), other = finish(
        start(tmp_path / "run", ["--config.seed=1"], ["--config.seed=2", f"--workdir={tmp_path}/b"])
    )
    assert (status, message) == other
    assert status == 2
    assert message.startswith("error: Expected all workers of a job to have the same config, ")
    assert f"--workdir is '{tmp_path}/run' in worker 0 and '{tmp_path}/b' in worker 1" in message
    assert "config.seed is 1 in worker 0 and 2 in worker 1" in message
    assert not list(tmp_path.iterdir())


def test_directory_of_a_run_that_goes_on(start, tmp_path):
    with lock(tmp_path):
        (status, message), other = finish(start(tmp_path))
    assert (status, message) == other
    assert status == 2
    assert message.startswith(f"error: {tmp_path} is in use by process {os.getpid()} on ")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_killed_five_times(start, tmp_path, final_state, assert_same):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    assert [status for status, _ in finish(start(expected))] == [0, 0]
    rng = random.Random(5)
    for number in range(5):
        processes = start(workdir)
        wait_for(workdir, 10 + 20 * number, processes)
        time.sleep(rng.uniform(0.0, 0.05))
        lost = number % 2
        processes[lost].kill()
        assert finish(processes)[1 - lost][0] == 1
    assert [status for status, _ in finish(start(workdir))] == [0, 0]
    assert_same(final_state(workdir), final_state(expected))
