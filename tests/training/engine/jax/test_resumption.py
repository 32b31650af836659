"""Runs that are killed, stopped or moved end as if they had not been."""

import numpy as np
import pytest

from tests.training.runs import KILLS, column, finish, kill_at_random, rows, stop

pytest.importorskip("jax", reason="make test-jax installs it")

SHARDED = ("--config.strategy=sharded", "--config.mesh.data=2", "--config.mesh.fsdp=4")


@pytest.fixture
def start(launch, train_command, jax_environment):
    """Starts a run on simulated devices."""

    def run(workdir, *options, devices=8):
        return launch(*train_command(workdir, *options), environment=jax_environment(devices))

    return run


@pytest.mark.parametrize("kills", KILLS)
def test_killed(kills, start, tmp_path, final_state, assert_same):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    finish(start(expected, *SHARDED))
    kill_at_random(lambda workdir: start(workdir, *SHARDED), workdir, kills)
    finish(start(workdir, *SHARDED))
    assert_same(final_state(workdir), final_state(expected))
    assert rows(workdir) == rows(expected)


@pytest.mark.long
def test_stopped_damaged_and_moved(start, tmp_path, final_state):
    expected, workdir = tmp_path / "uninterrupted", tmp_path / "moved"
    # Under SGD rounding stays small for all the steps: Adam scales gradients of noise to its rate.
    sgd = ("--config.optimizer.name=sgd", "--config.optimizer.base_lr=0.03")
    finish(start(expected, *sgd, devices=1))

    # Stopped on eight devices.
    step = stop(workdir, 50, start(workdir, *sgd, *SHARDED))
    newest = workdir / "checkpoints" / f"checkpoint-{step}"

    # One bit of the newest state turns over.
    file = newest / "part-0.safetensors"
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
    state, reference = final_state(workdir), final_state(expected)
    for name in reference:
        if "key/bias" not in name and not name.startswith(("optimizer/", "numbers/")):
            np.testing.assert_allclose(state[name], reference[name], atol=1e-4, err_msg=name)
