import os
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.data.sets import fingerprint
from keras_vit.training.errors import UsageError
from tests.training.data.helpers import write_photos

NAMES = [f"{kind}/{number}.jpg" for kind in ("crow", "finch", "owl") for number in range(12)]
EXCHANGED = "the photos of crow are in finch; the photos of finch are in crow"
EXCHANGE = "crow > .aside; finch > crow; .aside > finch"
GULLS = [f"gull/other{number}.jpg" for number in range(12)]


@pytest.fixture
def birds(tmp_path):
    write_photos(tmp_path, NAMES)
    return tmp_path


def described(folder):
    return data.open_dataset(f"folder:{folder}").describe("train[:80%]", "train[80%:]")


def refusal(before, now, accept=False):
    try:
        fingerprint.require_same(before, now, "/runs/birds", accept)
    except UsageError as error:
        assert str(error).startswith("The data of /runs/birds has changed: ")
        return str(error)


@pytest.mark.rows(("folder:/b", "/b"), ("labels:/b", "labels:/b"))
def test_what_trains_on_the_photos_of_now_is_named(dataset, named, birds):
    before = described(birds)
    now = before | {"train": before["train"] | {"digest": "other"}}
    with pytest.raises(UsageError, match=f"--config=own_photos:{named},model=/m "):
        fingerprint.require_same(before, now, "/runs/birds", dataset=dataset, model="/m")


def test_the_same_data_is_the_same_wherever_it_lies(birds, tmp_path_factory, caplog):
    before = described(birds)
    assert fingerprint.is_description(before)
    assert before["class_names"] == ["crow", "finch", "owl"]
    for key in ("train", "eval"):
        assert sum(count for count, _ in before[key]["classes"]) == before[key]["examples"]
    elsewhere = tmp_path_factory.mktemp("copy")
    write_photos(elsewhere, NAMES)
    os.utime(elsewhere / NAMES[0], (0, 0))
    now = described(elsewhere)
    assert fingerprint.changes(before, now) == ("", False)
    assert refusal(before, before) is None and not caplog.text
    assert refusal(before, now, True) is None and "were written since, with the" in caplog.text
    assert fingerprint.changes_since({"data": before}, now).startswith("Files were written since")
    np.testing.assert_array_equal(fingerprint.as_numbers(before), fingerprint.as_numbers(now))
    # What is no description is known.
    assert fingerprint.is_description({**before, "eval": None, "class_names": None})
    cases = [("class_names", "crow", [1, 2]), ("few_shot", None, {"digest": [1]})]
    cases += [("accepted", None, 5), *(("train", None), ("eval", []), ("accepted_after", None))]
    for key, *values in cases:
        for value in values:
            assert not fingerprint.is_description(before | {key: value})
    for key, value in (("digest", 7), ("examples", "many"), ("classes", [["3", "a"]])):
        assert not fingerprint.is_description(before | {"train": before["train"] | {key: value}})
    assert not any(map(fingerprint.is_description, (None, [], {}, {"class_names": None})))


# Folders that are renamed, of which a hidden one is none; classes of which a photo gets longer.
@pytest.mark.rows(
    ("finch > gull", [], [], "the class finch is called gull", False),
    ("", [], ["crow"], "photos of crow in train are others", False),
    ("owl > .x; .x > owl/x", [], [], "the files are others, or stand in other folders", False),
    # Labels are places in sorted order.
    ("finch > auk", [], [], "the class finch is called auk", True),
    ("crow > raven", [], [], "the class crow is called raven", True),
    ("finch > .x", [], [], "the class finch was removed", True),
    ("", ["auk/1.jpg"], [], "the class auk was added", True),
    # In the place of a class, but of other photos.
    ("finch > .x", GULLS, [], "the class gull was added; the class finch was removed", True),
    # The photos that are held out tell.
    (EXCHANGE, [], ["crow", "finch"], EXCHANGED, True),
    (EXCHANGE, [], [], EXCHANGED, True),
)
def test_a_change_is_said_and_moved_labels_refused(renamed, added, longer, words, moved, birds):
    before = described(birds)
    for was, now in re.findall(r"(\S+) > ([^\s;]+)", renamed):
        (birds / now).parent.mkdir(exist_ok=True)
        (birds / was).rename(birds / now)
    write_photos(birds, added)
    photos = data.open(f"folder:{birds}", "train[:80%]").photos
    for name in longer:
        file = next(birds / one.path for one in photos if one.path.startswith(name))
        file.write_bytes(file.read_bytes() + b"more")
    now = described(birds)
    assert fingerprint.changes(before, now) == (words, moved) and words in refusal(before, now)
    assert not np.array_equal(*map(fingerprint.as_numbers, (before, now)))
    accepted = refusal(before, now, accept=True)
    if moved:
        assert "Labels stand for other classes now" in accepted and "accept" not in accepted
    else:
        assert accepted is None and "--config.data_changed=accept" in refusal(before, now)


def test_photos_that_come_and_go_are_counted_and_another_order_is_refused(birds):
    before = described(birds)
    write_photos(birds, [f"crow/new{number}.jpg" for number in range(30)])
    now, changes = described(birds), []
    for key in ("train", "eval"):
        was, there = (data[key]["classes"][0][0] for data in (before, now))
        assert there > was + 1
        changes.append(f"{key} has {there} photos of crow instead of {was}")
    assert fingerprint.changes(before, now) == ("; ".join(changes), False)
    assert refusal(before, now, accept=True) is None

    now = {**before, "class_names": ["finch", "crow", "owl"]}
    assert fingerprint.changes(before, now) == ("the classes stand in another order", True)
    # Of classes without photos to compare, one in the place of another is it.
    of_files = {"train": {"digest": "1", "examples": 9}, "eval": None}
    was, now, more = ({**of_files, "class_names": list(names)} for names in ("abc", "adc", "abcd"))
    assert fingerprint.changes(was, now) == ("the class b is called d", False)
    assert fingerprint.changes(was, more) == ("the class d was added", True)
    assert fingerprint.changes({**was, "class_names": None}, was)[1]


def test_shards_that_are_others_are_noticed(data_dir, damaged_digits, numbers):
    describe = data.open_dataset("digits", data_dir).describe
    before = describe("train", "test")
    assert fingerprint.is_description(before) and "classes" not in before["train"]
    assert before["class_names"] == list("0123456789")
    shorter, last = describe("train[:90%]", "test"), describe("train[-1294:]", "test")
    assert "train has 1294 examples instead of 1438" in refusal(before, shorter)
    assert "the files are others" in refusal(shorter, last)
    assert refusal(shorter, last, accept=True) is None
    # Neither the run before nor this one evaluates: nothing to say of it.
    assert refusal(before, describe("train")) is None
    # Names of classes are not always known.
    names = data.open_dataset("tfds:numbers", numbers).describe("train")
    assert names["class_names"] is None and fingerprint.is_description(names)
    # Shards that are written again: records are known by their sizes.
    damaged = damaged_digits.dataset
    assert damaged.describe("train")["train"]["digest"] == before["train"]["digest"]
    (file,) = damaged.place.glob("*train.tfrecord*")
    kept = list(tf.data.TFRecordDataset(str(file)).ignore_errors().as_numpy_iterator())
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in (3 * kept)[:1438]:
            writer.write(record)
    again = data.open_dataset("digits", damaged.place.parents[1]).describe("train")
    assert "the files are others" in refusal(before, again)


def test_a_checkpoint_is_known_by_its_files(tmp_path):
    digest = fingerprint.digest_of_checkpoint
    assert digest("") == digest("augreg/Ti_16") == digest(str(tmp_path)) == ""
    found = [""]
    for name in ("config.json", "model.safetensors", "model.safetensors", "model.keras"):
        with open(tmp_path / name, "a") as file:
            file.write(name)
        found.append(digest(str(tmp_path)))
    assert len(set(found)) == 5 and found[-1] == digest(str(tmp_path / "model.keras"))
