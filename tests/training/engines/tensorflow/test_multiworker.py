"""Two real worker processes: stopped, bereaved, restarted, and back to the same weights."""

import signal
import time

import pytest

pytestmark = pytest.mark.long

STEPS = 120


@pytest.fixture
def start(launch, cluster, train_command):
    """Starts both workers of a job in a directory and returns their processes."""

    def run(workdir):
        options = ["--config.strategy=multiworker", f"--config.total_steps={STEPS}"]
        command = train_command(workdir, *options)
        return [launch(*command, environment=environment) for environment in cluster(2)]

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
