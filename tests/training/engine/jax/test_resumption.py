"""Runs that are killed end as if they had not been; `test_equivalence.py` has those that move."""

import pytest

from tests.training.runs import KILLS, finish, kill_at_random, rows

pytest.importorskip("jax", reason="make test-jax installs it")

SHARDED = ("--config.strategy=sharded", "--config.mesh.data=2", "--config.mesh.fsdp=4")


@pytest.mark.parametrize("kills", KILLS)
def test_killed(kills, launch, train_command, jax_environment, tmp_path, final_state, assert_same):
    def start(workdir):
        return launch(*train_command(workdir, *SHARDED), environment=jax_environment(8))

    expected, workdir = tmp_path / "uninterrupted", tmp_path / "interrupted"
    finish(start(expected))
    kill_at_random(start, workdir, kills)
    finish(start(workdir))
    assert_same(final_state(workdir), final_state(expected))
    assert rows(workdir) == rows(expected)
