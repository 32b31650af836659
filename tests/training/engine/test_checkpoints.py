import errno
import json
import os
import shutil
import threading

import ml_dtypes
import numpy as np
import pytest

from keras_vit.training.engine import checkpoints as module
from keras_vit.training.engine.checkpoints import Checkpoints, Shards, read, steps, whole
from keras_vit.training.errors import TrainingError

ROWS = np.arange(60_000, dtype=np.float32).reshape(-1, 4)


def arrays_of(value):
    return {"kernel": whole(ROWS + value), "loop/a": whole(np.array(value, np.float64))}


def save(folder, *steps):
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, lambda step=step: arrays_of(step))
    checkpoints.wait()


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "checkpoints", 1, 2)
    return tmp_path / "checkpoints"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_values_are_kept_bit_for_bit(tmp_path):
    arrays = {"a/kernel": ROWS, "optimizer/moment": ROWS.astype(ml_dtypes.bfloat16)}
    arrays |= {"optimizer/iterations": np.array(2**40), "empty": np.zeros((0, 3), np.float32)}
    arrays |= {"loop/sums": np.array([1 / 3, np.nan, 1e-300])}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, lambda: {name: whole(array) for name, array in arrays.items()})
    checkpoints.wait()
    found = read(tmp_path, 3)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        values = found[name].read()
        assert (values.dtype, values.shape) == (array.dtype, array.shape)
        assert values.tobytes() == array.tobytes()


def test_saving_goes_on_in_the_background(tmp_path, monkeypatch):
    goes_on, rename = threading.Event(), type(tmp_path).rename
    monkeypatch.setattr(type(tmp_path), "rename", lambda *a: goes_on.wait(60) and rename(*a))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, lambda: arrays_of(1))
    assert (checkpoints.saved_step, steps(tmp_path)) == (None, [])
    goes_on.set()
    checkpoints.wait()
    assert (checkpoints.saved_step, steps(tmp_path)) == (1, [1])
    checkpoints.save(1, lambda: pytest.fail("It is saved."))


def test_several_processes_write_their_parts(tmp_path):
    def arrays(part):
        pieces = [((row, 0), ROWS[row : row + 3000]) for row in range(part * 3000, 15_000, 6000)]
        # Of the first process alone.
        scalar = Shards((), ROWS.dtype, [((), np.array(7, np.float32))][part:])
        return {"kernel": Shards(ROWS.shape, ROWS.dtype, pieces), "scalar": scalar}

    processes = [Checkpoints(tmp_path, part=part, parts=2) for part in (0, 1)]
    processes[0].save(1, lambda: arrays(0))
    assert not steps(tmp_path)
    processes[1].save(1, lambda: arrays(1))
    processes.append(Checkpoints(tmp_path / "none", part=None))  # A process that writes nothing.
    processes[-1].save(1, lambda: pytest.fail("It writes nothing."))
    for process in processes:
        process.wait()
        assert process.saved_step == 1
    assert names(tmp_path) == ["checkpoint-1"]
    parts = ["part-0.safetensors", "part-1.safetensors"]
    assert names(tmp_path / "checkpoint-1") == ["manifest.json", *parts]
    found = read(tmp_path, 1)
    np.testing.assert_array_equal(found["kernel"].read(), ROWS)
    # Divided in another way than it was.
    for index in ((slice(2000, 7000), slice(1, 3)), (slice(0, 3000), slice(None))):
        np.testing.assert_array_equal(found["kernel"].read(index), ROWS[index])
    assert found["scalar"].read() == 7
    found["kernel"].pieces.pop()
    with pytest.raises(ValueError, match="pieces of an array are missing"):
        found["kernel"].read()


def test_remains_of_a_killed_process_are_removed_and_a_full_disk_keeps_the_rest(no_room, folder):
    for name in (".checkpoint-3", ".checkpoint-1"):
        (folder / name).mkdir()
        (folder / name / "part-0.safetensors").write_bytes(b"half")
    (folder / "damaged-checkpoint-1").mkdir()
    checkpoints = Checkpoints(folder)
    assert checkpoints.newest() == 2
    assert names(folder) == ["checkpoint-1", "checkpoint-2", "damaged-checkpoint-1"]
    no_room()
    checkpoints.save(3, lambda: arrays_of(3))
    message = r"step 3 cannot be written .*File too large.* last good .* step 2\. Make room"
    with pytest.raises(TrainingError, match=message):
        checkpoints.wait()
    assert names(folder) == ["checkpoint-1", "checkpoint-2", "damaged-checkpoint-1"]


def test_only_names_that_are_written_here_are_read_replaced_or_removed(folder, tmp_path):
    endings = ("02", "09", "\N{ARABIC-INDIC DIGIT NINE}", "2-best", "+9", "1_0", "9 ", "")
    copies = [f"checkpoint-{ending}" for ending in endings]
    others = [f".checkpoint-{ending}" for ending in ("of-my-paper", "07", "3.old")]
    others.append("damaged-checkpoint-")
    for name in (*copies, *others):
        shutil.copytree(folder / "checkpoint-2", folder / name)
    (folder / "checkpoint-8").write_text("notes")
    (folder / "checkpoint-0").mkdir()
    (folder / "checkpoint-0" / "trainer_state.json").write_text("of another program")
    foreign = {*copies, *others, "checkpoint-0", "checkpoint-8"}
    assert steps(folder) == [0, 1, 2] and Checkpoints(folder).newest() == 2
    save(folder, 3, 4)
    assert {*names(folder)} == {*foreign, "checkpoint-3", "checkpoint-4"}
    # Of a state that was moved to another disk the link alone is removed.
    (folder / "checkpoint-3").rename(tmp_path / "moved")
    (folder / "checkpoint-3").symlink_to(tmp_path / "moved")
    assert Checkpoints(folder).newest() == 4
    save(folder, 5)
    assert {*names(folder)} == {*foreign, "checkpoint-4", "checkpoint-5"}
    assert len(names(tmp_path / "moved")) == 2


def test_a_later_state_of_another_run_does_not_push_out_what_was_just_saved(folder, monkeypatch):
    shutil.copytree(folder / "checkpoint-2", folder / "checkpoint-1000")
    # Nor does it matter that an earlier one is gone by now.
    monkeypatch.setattr(module, "steps", lambda folder: [0, 1, 2, 3, 1000])
    save(folder, 3)
    assert steps(folder) == [2, 3, 1000]


def test_an_earlier_state_that_stays_is_named(folder, monkeypatch):
    def refuse(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    message = r"^Checkpoints before step 3 cannot be removed from .*: .*Read-only file system.* ste"
    with pytest.raises(TrainingError, match=rf"{message}p 3\. Make room, or let the folder be cha"):
        save(folder, 3)
    assert steps(folder) == [2, 3]


@pytest.mark.parametrize("file", ["part-0.safetensors", "manifest.json"])
def test_a_flipped_bit_in_any_place_is_noticed(folder, file, caplog):
    path = folder / "checkpoint-2" / file
    size = path.stat().st_size
    # All of what says what is in the file, and some of the values.
    for place in {*range(min(size, 300)), *range(0, size, 1 + size // 100), size - 1}:
        flip(path, place)
        checkpoints = Checkpoints(folder)
        assert checkpoints.newest() == 1, place
        assert "checkpoint-2 cannot be read" in caplog.text
        flip(folder / "damaged-checkpoint-2" / file, place)
        (folder / "damaged-checkpoint-2").rename(folder / "checkpoint-2")
        caplog.clear()
    assert Checkpoints(folder).newest() == 2


@pytest.mark.parametrize("file", ["part-0.safetensors", "manifest.json"])
def test_a_missing_file(folder, file):
    (folder / "checkpoint-2" / file).unlink()
    # It was damaged before, as is one that was given another name.
    (folder / "damaged-checkpoint-2" / "of then").mkdir(parents=True)
    shutil.copytree(folder / "checkpoint-1", folder / "checkpoint-3")
    checkpoints = Checkpoints(folder)
    assert checkpoints.newest() == checkpoints.saved_step == 1
    assert "of then" not in names(folder / "damaged-checkpoint-2")
    assert float(read(folder, 1)["loop/a"].read()) == 1.0
    save(folder, 2)  # The good one is not pushed out by the damaged one.
    assert steps(folder) == [1, 2]


def test_nothing_is_restored_from_damaged_states_alone(folder):
    for step in (1, 2):
        flip(folder / f"checkpoint-{step}" / "part-0.safetensors", -1)
    with pytest.raises(TrainingError, match=r"None of .* checkpoint-2, checkpoint-1\. Move the"):
        Checkpoints(folder).newest()
    assert names(folder) == ["checkpoint-1", "checkpoint-2"]
    (folder / "checkpoint-2" / "manifest.json").write_text(json.dumps(["", {"arrays": []}]))
    with pytest.raises(TrainingError, match=r"cannot be read: manifest\.json is not as"):
        read(folder, 2)


@pytest.mark.parametrize("name", ["run[1]", "a\\b", "what?*", "{a,b}~", "é漢😀 \n%20", "long" * 60])
def test_the_newest_are_kept_in_a_folder_whose_name_reads_like_a_pattern(tmp_path, name):
    folder = tmp_path / name / "checkpoints"
    save(folder, 9, 10, 11)  # In the order of steps, not of names.
    assert steps(folder) == [10, 11] and names(folder) == ["checkpoint-10", "checkpoint-11"]
    flip(folder / "checkpoint-11" / "part-0.safetensors", -1)
    # The folder holds no name of another folder: it can be moved.
    moved = folder.rename(tmp_path / "moved")
    assert Checkpoints(moved).newest() == 10
    np.testing.assert_array_equal(read(moved, 10)["kernel"].read(), ROWS + 10)
