"""A state is saved whole or not at all, and a damaged one gives way to the one before."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.engines.jax import tensorflow_states
from training.engines.tensorflow.checkpoint_files import state_paths
from training.engines.tensorflow.training_checkpoints import Checkpoints
from training.errors import TrainingError


def state_of(value):
    optimizer = keras.optimizers.SGD(0.1)
    return {"optimizer": optimizer, "weights": tf.Variable(tf.fill([30_000], float(value)))}


def advance(state):
    state["optimizer"].iterations.assign_add(1)
    state["weights"].assign_add(tf.ones_like(state["weights"]))


def save_twice(folder):
    state = state_of(0)
    checkpoints = Checkpoints(folder, state)
    for _ in range(2):
        advance(state)
        checkpoints.save()


def damage(workdir, step):
    """Flips the bits of some bytes in the middle of a checkpoint."""
    file = workdir / f"checkpoint-{step}.data-00000-of-00001"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(255 - byte for byte in content[middle : middle + 8])
    file.write_bytes(bytes(content))


def test_full_disk_keeps_the_checkpoint_before(no_room, tmp_path):
    state = state_of(0)
    checkpoints = Checkpoints(tmp_path, state)
    advance(state)
    checkpoints.save()
    advance(state)
    no_room()
    with pytest.raises(TrainingError, match=r"step 2 cannot .* last good .* step 1\. Make room"):
        checkpoints.save()
    again = state_of(0)
    assert Checkpoints(tmp_path, again).restore() == 1
    np.testing.assert_array_equal(again["weights"], np.ones(30_000))
    assert not list(tmp_path.glob("checkpoint-2*"))


def test_full_disk_is_named_though_the_path_is_long(no_room, tmp_path):
    folder = tmp_path / ("long" * 50) / ("longer" * 30)
    state = state_of(0)
    checkpoints = Checkpoints(folder, state)
    advance(state)
    no_room()
    with pytest.raises(TrainingError, match="File too large"):
        checkpoints.save()


def test_remains_of_a_killed_process_are_removed(tmp_path):
    save_twice(tmp_path)
    files = sorted(tmp_path.iterdir())
    (tmp_path / "checkpoint-60_temp").mkdir()
    (tmp_path / "checkpoint-60_temp" / "part-00000-of-00001.index").touch()
    for name in ("-60.index", "-60.data-00000-of-00001", "-2.index.tempstate123", ".tmp12ab"):
        (tmp_path / f"checkpoint{name}").touch()
    # Of JAX's engine, and of a state that was set aside.
    for kept in ("checkpoint-9", "damaged-checkpoint-1.index"):
        (tmp_path / kept).mkdir()
        files.append(tmp_path / kept)
    assert Checkpoints(tmp_path, state_of(0), writes=False).restore() == 2
    assert (tmp_path / "checkpoint-60_temp").exists()
    assert Checkpoints(tmp_path, state_of(0)).restore() == 2
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_remains_of_the_first_state_are_removed(tmp_path):
    (tmp_path / "checkpoint-60_temp").mkdir()
    (tmp_path / "checkpoint-60.data-00000-of-00001").touch()
    (tmp_path / "checkpoint-60.index.tempstate1").touch()
    assert Checkpoints(tmp_path, state_of(0)).restore() is None
    assert not list(tmp_path.iterdir())


def test_a_first_state_whose_parts_were_being_joined_is_removed(tmp_path):
    (tmp_path / "checkpoint-60_temp").mkdir()
    (tmp_path / "checkpoint-60.data-00000-of-00001").write_bytes(b"whole")
    (tmp_path / "checkpoint-60.index").write_bytes(b"half")
    assert Checkpoints(tmp_path, state_of(0)).restore() is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, b"", b"model_checkpoint_path: 5", b"\xff{"])
def test_the_list_of_states_is_missing_or_damaged(content, tmp_path):
    state = state_of(0)
    checkpoints = Checkpoints(tmp_path, state)
    # In the order of steps, not of names.
    state["optimizer"].iterations.assign(8)
    for _ in range(2):
        advance(state)
        checkpoints.save()
    listed = tmp_path / "checkpoint"
    listed.unlink() if content is None else listed.write_bytes(content)
    assert state_paths(tmp_path)[-1] == str(tmp_path / "checkpoint-10")
    again = state_of(0)
    restored = Checkpoints(tmp_path, again)
    assert restored.restore() == 10
    np.testing.assert_array_equal(again["weights"], np.full(30_000, 2.0))
    # What was saved before is still pushed out.
    advance(again)
    restored.save()
    assert sorted(file.name for file in tmp_path.glob("*.index")) == [
        "checkpoint-10.index",
        "checkpoint-11.index",
    ]


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    state = state_of(0)
    checkpoints = Checkpoints(tmp_path, state, keep=2)
    for _ in range(4):
        advance(state)
        checkpoints.save()
    assert sorted(file.name for file in tmp_path.glob("*.index")) == [
        "checkpoint-3.index",
        "checkpoint-4.index",
    ]


def test_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, caplog):
    save_twice(tmp_path)
    damage(tmp_path, 2)
    again = state_of(7)
    restored = Checkpoints(tmp_path, again)
    assert restored.restore() == 1
    np.testing.assert_array_equal(again["weights"], np.ones(30_000))
    assert "checkpoint-2 cannot be read" in caplog.text
    assert list(tmp_path.glob("damaged-checkpoint-2.*"))
    # The good one is not pushed out by the damaged one.
    advance(again)
    restored.save()
    assert len(list(tmp_path.glob("checkpoint-*.index"))) == 2


@pytest.mark.parametrize("missing", [".index", ".data-00000-of-00001"])
def test_checkpoint_with_a_missing_file(tmp_path, missing):
    save_twice(tmp_path)
    (tmp_path / f"checkpoint-2{missing}").unlink()
    assert Checkpoints(tmp_path, state_of(0)).restore() == 1


def test_nothing_is_restored_from_damaged_checkpoints_alone(tmp_path):
    state = state_of(0)
    checkpoints = Checkpoints(tmp_path, state)
    for step in (1, 2):
        advance(state)
        checkpoints.save()
        damage(tmp_path, step)
    again = state_of(7)
    with pytest.raises(TrainingError, match="None of the checkpoints"):
        Checkpoints(tmp_path, again).restore()
    np.testing.assert_array_equal(again["weights"], np.full(30_000, 7.0))
    assert len(list(tmp_path.glob("checkpoint-*.index"))) == 2


def test_numbers_are_kept_bit_for_bit(tmp_path):
    numbers = {"best": np.array(1 / 3), "sums": np.array([3.0, 0.1, 1e-300])}
    state = state_of(0)
    checkpoints = Checkpoints(tmp_path, state)
    for value in numbers.values():
        advance(state)
        checkpoints.save(numbers)
        value /= 7
    advance(state)
    checkpoints.save(numbers)
    restored = Checkpoints(tmp_path, state_of(0))
    assert restored.numbers is None
    assert restored.restore() == 3
    assert restored.numbers.keys() == numbers.keys()
    for name, value in numbers.items():
        assert restored.numbers[name].dtype == np.float64
        np.testing.assert_array_equal(restored.numbers[name], value)


def test_a_state_from_before_accuracies_were_float64(tmp_path):
    state = state_of(3)
    best = tf.Variable(0.7)
    sums = tf.Variable([1.0, 2.0, 3.0], dtype=tf.float64)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(**state, best=best, sums=sums), str(tmp_path), max_to_keep=2
    )
    manager.save(checkpoint_number=0)
    restored = Checkpoints(tmp_path, state_of(0))
    assert restored.restore() == 0
    assert restored.numbers["best"] == np.float64(np.float32(0.7))
    np.testing.assert_array_equal(restored.numbers["sums"], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("name", ["run[1]", "a\\b", "what?*", "[", "{a,b}"])
def test_folder_whose_name_reads_like_a_pattern(tmp_path, name):
    folder = tmp_path / name / "checkpoints"
    state = state_of(0)
    checkpoints = Checkpoints(folder, state)
    for _ in range(3):
        advance(state)
        checkpoints.save()
    assert {file.stem for file in folder.glob("*.index")} == {"checkpoint-2", "checkpoint-3"}
    assert tensorflow_states.read_newer(folder, 2).step == 3
    assert tensorflow_states.read_newer(folder, 3) is None
    damage(folder, 3)
    again = state_of(7)
    assert Checkpoints(folder, again).restore() == 2
    np.testing.assert_array_equal(again["weights"], np.full(30_000, 2.0))
    # The folder holds no name of another folder: it can be moved.
    moved = folder.rename(tmp_path / "moved")
    assert Checkpoints(moved, state_of(0)).restore() == 2


def test_jax_takes_the_newest_state_that_can_be_read(tmp_path):
    save_twice(tmp_path)
    assert tensorflow_states.read_newer(tmp_path, 1).step == 2
    damage(tmp_path, 2)
    assert tensorflow_states.read_newer(tmp_path, None, chief=False).step == 1
    assert len(state_paths(tmp_path)) == 2
    # JAX's own of step 1 is as new as the one before.
    assert tensorflow_states.read_newer(tmp_path, 1) is None
    assert state_paths(tmp_path) == [str(tmp_path / "checkpoint-1")]
    assert (tmp_path / "damaged-checkpoint-2.index").exists()
    damage(tmp_path, 1)
    with pytest.raises(TrainingError, match="Move the folder away to start anew"):
        tensorflow_states.read_newer(tmp_path, None)
    assert tensorflow_states.read_newer(tmp_path, 0) is None
    assert not state_paths(tmp_path)
