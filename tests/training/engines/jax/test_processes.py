"""Two real processes of four devices: stopped, bereaved, restarted, back to the same weights."""

import os
import random
import signal
import socket
import time

import pytest

from training import config_keys
from training.io.locks import lock

processes = pytest.importorskip(
    "training.engines.jax.processes", reason="make test-jax installs it"
)


@pytest.fixture
def start(launch, train_command, jax_environment, joined):
    def run(workdir, *own):
        """Starts both with the options that each has of its own."""
        return [
            launch(
                *train_command(workdir, "--config.total_steps=120", *options, *more),
                environment=jax_environment(4),
            )
            for options, more in zip(joined(2), own or ([], []), strict=True)
        ]

    return run


@pytest.mark.long
def test_stop_loss_and_resumption(start, finish, wait_for, tmp_path, last_state, assert_same):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    for process in start(expected):
        finish(process)

    jobs = start(workdir)
    wait_for(workdir, 20, *jobs)
    jobs[1].send_signal(signal.SIGTERM)
    messages = [finish(process, status=143) for process in jobs]
    assert messages[0] == messages[1]
    step = int(messages[0].split("Stopped on request after step ")[1].split()[0])

    jobs = start(workdir)
    wait_for(workdir, max(60, step // 10 * 10 + 10), *jobs)
    jobs[1].kill()
    lost = time.monotonic()
    message = finish(jobs[0], status=1)
    assert time.monotonic() - lost < 60
    assert message.startswith("error: Lost worker 1 (")
    assert message.endswith("Start all workers again with the same command and workdir.")

    for process in start(workdir):
        finish(process)
    assert_same(last_state(workdir), last_state(expected))


@pytest.mark.slow
def test_killed_five_times(start, finish, wait_for, tmp_path, last_state, assert_same):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    for process in start(expected):
        finish(process)
    rng = random.Random(5)
    for number in range(5):
        jobs = start(workdir)
        wait_for(workdir, 10 + 20 * number, *jobs)
        time.sleep(rng.uniform(0.0, 0.05))
        lost = number % 2
        jobs[lost].kill()
        finish(jobs[1 - lost], status=1)
    for process in start(workdir):
        finish(process)
    assert_same(last_state(workdir), last_state(expected))


@pytest.mark.long
def test_processes_that_were_started_differently(start, finish, tmp_path):
    own = ["--config.seed=1"], ["--config.seed=2", f"--workdir={tmp_path}/b"]
    messages = [finish(process, status=2) for process in start(tmp_path / "run", *own)]
    assert messages[0] == messages[1]
    assert (
        f"--workdir is '{tmp_path}/run' in worker 0 and '{tmp_path}/b' in worker 1" in messages[0]
    )
    assert "config.seed is 1 in worker 0 and 2 in worker 1" in messages[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_directory_of_a_run_that_goes_on(start, finish, tmp_path):
    with lock(tmp_path):
        messages = [finish(process, status=2) for process in start(tmp_path)]
    assert messages[0] == messages[1]
    assert messages[0].startswith(f"error: {tmp_path} is in use by process {os.getpid()} on ")
    assert not list(tmp_path.iterdir())


_JOIN = """
import sys, time
from training import config_keys
from training.engines.jax import processes
given = {"coordinator": sys.argv[1], "count": 2, "index": int(sys.argv[2])}
keys = {"dataset": "digits", "batch_size": 8, "total_steps": 1, "strategy": "sharded"}
keys["processes"] = given
job = processes.join(config_keys.complete(keys))
end = time.monotonic() + 60
while not job.watch.came:
    assert time.monotonic() < end
    time.sleep(0.05)
open(sys.argv[3], "w").close()
time.sleep(100)
"""


@pytest.mark.long
@pytest.mark.parametrize("lost", [0, 1])
def test_loss_is_named(lost, launch, jax_environment, tmp_path):
    with socket.create_server(("localhost", 0)) as server:
        coordinator = f"localhost:{server.getsockname()[1]}"
    jobs = [
        launch(
            "-c", _JOIN, coordinator, index, tmp_path / str(index), environment=jax_environment()
        )
        for index in (0, 1)
    ]
    # Each writes its file when its watch has seen the other, or ends.
    while len(list(tmp_path.iterdir())) < 2:
        assert all(process.poll() is None for process in jobs)
        time.sleep(0.1)
    jobs[lost].kill()
    output, _ = jobs[1 - lost].communicate(timeout=60)
    assert jobs[1 - lost].returncode == 1
    assert output.strip().splitlines()[-1].startswith(f"error: Lost worker {lost} (")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coordinator": "somewhere"}, 'expected "host:port" of process 0'),
        ({"coordinator": "host:1", "count": 2, "index": 2}, "index=2, count=2"),
    ],
)
def test_wrong_processes(given, message):
    keys = {"dataset": "digits", "batch_size": 8, "total_steps": 1, "strategy": "sharded"}
    config = config_keys.complete(keys | {"processes": given})
    with pytest.raises(processes.UsageError, match=message):
        processes.join(config)


def test_one_process_joins_nobody():
    config = config_keys.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    assert processes.join(config) is None
