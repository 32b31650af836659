"""A state is saved whole or not at all, and what a killed process left of one is removed."""

import json
import pathlib

import numpy as np
import pytest

from training.engines.tensorflow import jax_states

checkpoints = pytest.importorskip(
    "training.engines.jax.training_checkpoints", reason="make test-jax installs it"
)


@pytest.fixture
def folder(tmp_path):
    """A folder with the states of steps 1 and 2."""
    saver = checkpoints.Checkpoints(tmp_path)
    for step in (1, 2):
        saver.save(step, {"numbers": {"a": np.full(3, float(step))}})
    saver.wait()
    return tmp_path


def names(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


def test_remains_of_a_killed_process_are_removed(folder):
    files = names(folder)
    # What SIGKILL left: before the arrays were whole, and before the name was its own.
    for name in (".checkpoint-3.orbax-checkpoint-tmp", ".checkpoint-3"):
        (folder / name / "ocdbt.process_0" / "d").mkdir(parents=True)
        (folder / name / "ocdbt.process_0" / "d" / "half").write_bytes(b"1")
    # Of TensorFlow's engine, and of a state that was set aside.
    for kept in ("checkpoint-9.index", "damaged-checkpoint-1"):
        (folder / kept).mkdir()
        files.append(kept)
    assert checkpoints.Checkpoints(folder, chief=False).newest() is None
    assert (folder / ".checkpoint-3").exists()
    assert checkpoints.Checkpoints(folder).newest() == 2
    assert names(folder) == sorted(files)


def test_an_old_state_that_was_being_deleted(folder):
    """Is neither used nor in the way, and goes with the next state."""
    (folder / "checkpoint-1" / "files.json").unlink()
    saver = checkpoints.Checkpoints(folder)
    assert saver.newest() == 2
    saver.save(3, {"numbers": {"a": np.zeros(3)}})
    saver.wait()
    assert names(folder) == ["checkpoint-2", "checkpoint-3"]


@pytest.mark.parametrize("damage", ["missing", "changed", "no digests"])
def test_a_damaged_state_gives_way_to_the_one_before(damage, folder):
    digests = folder / "checkpoint-2" / "files.json"
    name = next(iter(json.loads(digests.read_text())))
    if damage == "missing":
        (folder / "checkpoint-2" / name).unlink()
    elif damage == "changed":
        (folder / "checkpoint-2" / name).write_bytes(b"else")
    else:
        digests.unlink()
    # It was damaged before.
    (folder / "damaged-checkpoint-2" / "of then").mkdir(parents=True)
    assert checkpoints.Checkpoints(folder).newest() == 1
    assert names(folder) == ["checkpoint-1", "damaged-checkpoint-2"]
    assert "of then" not in names(folder / "damaged-checkpoint-2")
    found = checkpoints.read_arrays(folder, 1)
    np.testing.assert_array_equal(found["numbers"]["a"], np.full(3, 1.0))


def test_nothing_is_restored_from_damaged_states_alone(folder):
    for step in (1, 2):
        (folder / f"checkpoint-{step}" / "files.json").unlink()
    with pytest.raises(checkpoints.TrainingError, match="Move the folder away to start anew"):
        checkpoints.Checkpoints(folder).newest()
    assert names(folder) == ["checkpoint-1", "checkpoint-2"]


def test_tensorflow_takes_only_what_is_newer_and_whole(folder):
    """Its own state of step 1 or 2 is used where JAX's is damaged, or as old."""
    assert jax_states.restore_newer(folder, 2, None, None) is None
    (folder / "checkpoint-2" / "files.json").write_text('{"else": ""}')
    assert jax_states.restore_newer(folder, 1, None, None) is None
    assert names(folder) == ["checkpoint-1", "damaged-checkpoint-2"]
    (folder / "checkpoint-1" / "files.json").write_text('{"else": ""}')
    assert jax_states.restore_newer(folder, 0, None, None) is None
    with pytest.raises(checkpoints.TrainingError, match="Move the folder away to start anew"):
        jax_states.restore_newer(folder, None, None, None)
