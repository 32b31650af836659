"""Runs that are killed, stopped or moved end as if they had not been."""

import random
import signal
import time

import numpy as np
import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")

SHARDED = ("--config.strategy=sharded", "--config.mesh.data=2", "--config.mesh.fsdp=4")


@pytest.fixture
def start(launch, train_command, jax_environment):
    """Starts a run on simulated devices, or under TensorFlow without any."""

    def run(workdir, *SHARDED, devices=8):
        environment = jax_environment(devices) if devices else {}
        return launch(*train_command(workdir, *SHARDED), environment=environment)

    return run


def rows(workdir):
    """Returns the rows of `metrics.csv` without speed, the one column that two runs differ in."""
    lines = (workdir / "metrics.csv").read_text().splitlines()
    return [[value for i, value in enumerate(line.split(",")) if i != 4] for line in lines]


def column(workdir, name):
    lines = [line.split(",") for line in (workdir / "metrics.csv").read_text().splitlines()]
    values = [line[lines[0].index(name)] for line in lines[1:]]
    return np.array([float(value) for value in values if value])


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_killed(kills, start, finish, kill, wait_for, tmp_path, last_state, assert_same):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    finish(start(expected, *SHARDED))
    rng = random.Random(kills)
    for number in range(kills):
        process = start(workdir, *SHARDED)
        first = 10 * (1 + 15 * number // kills)
        wait_for(workdir, rng.randrange(first, first + 20, 10), process)
        time.sleep(rng.uniform(0.0, 0.05))
        kill(process)
        assert not (workdir / "model.keras").exists()
    finish(start(workdir, *SHARDED))
    assert_same(last_state(workdir), last_state(expected))
    assert rows(workdir) == rows(expected)
    assert len(rows(workdir)) == 1 + 200 // 20


@pytest.mark.long
def test_stopped_damaged_and_moved(start, finish, wait_for, tmp_path, last_state):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "moved"
    # Under SGD rounding stays small for all the steps: Adam scales gradients of noise to its rate.
    sgd = ("--config.optimizer.name=sgd", "--config.optimizer.base_lr=0.03")
    finish(start(expected, *sgd, devices=1))

    # Stopped on eight devices.
    process = start(workdir, *sgd, *SHARDED)
    wait_for(workdir, 50, process)
    process.send_signal(signal.SIGTERM)
    message = finish(process, status=143)
    assert message.startswith("error: Stopped on request after step ")
    step = int(message.split("step ")[1].split()[0])
    newest = workdir / "checkpoints" / f"checkpoint-{step}"

    # One bit of the newest state turns over.
    file = max((newest / "ocdbt.process_0" / "d").iterdir(), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    # It goes on from the one before, on two devices, and ends where one device does.
    process = start(workdir, *sgd, "--config.strategy=sharded", devices=2)
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, output
    assert f"checkpoint-{step} cannot be read" in output
    assert newest.with_name(f"damaged-{newest.name}").exists()
    for name in ("loss", "gradient_norm", "eval_loss"):
        np.testing.assert_allclose(column(workdir, name), column(expected, name), rtol=1e-4)
    state, reference = last_state(workdir), last_state(expected)
    for name in reference:
        if "key/bias" not in name and name.startswith("weights"):
            np.testing.assert_allclose(state[name], reference[name], atol=1e-4, err_msg=name)


@pytest.mark.long
def test_goes_on_after_tensorflow(start, finish, tmp_path):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "moved"
    plain = ("--config.model.dropout_rate=0.0", "--config.total_steps=100")
    finish(start(expected, *plain, devices=0))
    process = start(workdir, *plain, devices=0)
    while not (workdir / "checkpoints" / "checkpoint-50.index").exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    finish(process, status=143)
    finish(start(workdir, *plain, devices=1))
    for name in ("loss", "gradient_norm", "eval_loss"):
        np.testing.assert_allclose(column(workdir, name), column(expected, name), rtol=1e-4)
