"""What every way to fine-tune trains, freezes and resumes, also from the other engine's state."""

import pathlib

import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")
SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "transfer.py"


@pytest.fixture
def run(launch, tmp_path):
    """Runs the script in a folder of its own, and returns that."""

    def start(name, environment, *other):
        folder = tmp_path / name
        folder.mkdir()
        process = launch(SCRIPT, folder, *other, environment=environment)
        output, _ = process.communicate(timeout=1500)
        assert process.returncode == 0, output
        return folder

    return start


def test_which_weights_move_and_how_far(run, jax_environment):
    run("jax", jax_environment())


@pytest.mark.long
def test_frozen_weights_and_factors_go_from_one_engine_to_the_other(run, jax_environment):
    saved = run("tensorflow", {})
    saved = run("jax", jax_environment(), saved)
    run("again", {}, saved)
