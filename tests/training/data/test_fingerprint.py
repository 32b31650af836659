"""What identifies the data of a run, and what is said of it when it has changed."""

import os

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.data import fingerprint
from keras_vit.training.errors import UsageError
from tests.training.data.helpers import write_photos

NAMES = [f"{kind}/{number}.jpg" for kind in ("crow", "finch", "owl") for number in range(12)]


@pytest.fixture
def birds(tmp_path):
    write_photos(tmp_path, NAMES)
    return tmp_path


def described(folder):
    """Returns the data of a run that holds a fifth out."""
    return data.open_dataset(f"folder:{folder}").describe("train[:80%]", "train[80%:]")


def refusal(before, now, accept=False):
    """Returns why a run does not go on with other data, or None."""
    try:
        fingerprint.require_same(before, now, "/runs/birds", accept)
    except UsageError as error:
        assert str(error).startswith("The data of /runs/birds has changed: ")
        assert "\n" not in str(error)
        return str(error)
    return None


def test_the_same_data_is_the_same_wherever_it_lies(birds, tmp_path_factory):
    before = described(birds)
    assert fingerprint.is_description(before)
    assert before["class_names"] == ["crow", "finch", "owl"]
    for key in ("train", "eval"):
        counts = [count for count, _ in before[key]["classes"]]
        assert sum(counts) == before[key]["examples"]
    elsewhere = tmp_path_factory.mktemp("copy")
    write_photos(elsewhere, NAMES)
    os.utime(elsewhere / NAMES[0], (0, 0))
    now = described(elsewhere)
    assert fingerprint.changes(before, now) == ([], False)
    assert refusal(before, now) is None
    np.testing.assert_array_equal(fingerprint.as_numbers(before), fingerprint.as_numbers(now))


def test_a_class_may_get_another_name_but_not_another_label(birds):
    before = described(birds)
    (birds / "finch").rename(birds / "gull")
    changed = described(birds)
    assert fingerprint.changes(before, changed) == (["the class finch is called gull"], False)
    assert "--config.data_changed=accept" in refusal(before, changed)
    assert refusal(before, changed, accept=True) is None


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("", "auk", "the class auk was added"),
        ("", "raven", "the class raven was added"),
        ("finch", "", "the class finch was removed"),
        # Labels are places in sorted order.
        ("finch", "auk", "the class finch is called auk"),
        ("crow", "raven", "the class crow is called raven"),
    ],
)
def test_labels_that_stand_for_other_classes_are_refused(birds, was, now, words):
    before = described(birds)
    if was:
        (birds / was).rename(birds / (now or ".hidden"))
    else:
        write_photos(birds, [f"{now}/{number}.jpg" for number in range(3)])
    assert fingerprint.changes(before, described(birds)) == ([words], True)
    for accept in (False, True):
        message = refusal(before, described(birds), accept)
        assert words in message and "Labels stand for other classes now" in message
        assert "accept" not in message


def test_a_class_of_other_photos_in_the_place_of_one_is_another_class(birds):
    before = described(birds)
    (birds / "finch").rename(birds / ".hidden")
    write_photos(birds, [f"gull/other{number}.jpg" for number in range(12)])
    words = ["the class gull was added", "the class finch was removed"]
    assert fingerprint.changes(before, described(birds)) == (words, True)


def test_folders_that_change_places_are_refused(birds):
    for name in ("crow", "finch", "owl"):
        write_photos(birds, [f"{name}/{name}.jpg"])
    before = described(birds)
    for was, now in (("crow", ".aside"), ("finch", "crow"), (".aside", "finch")):
        (birds / was).rename(birds / now)
    found, moved = fingerprint.changes(before, described(birds))
    assert moved and found == ["the photos of crow are in finch", "the photos of finch are in crow"]
    assert "accept" not in refusal(before, described(birds), accept=True)


def test_classes_in_another_order_are_refused(birds):
    before = described(birds)
    now = {**before, "class_names": ["finch", "crow", "owl"]}
    assert fingerprint.changes(before, now) == (["the classes stand in another order"], True)


def test_photos_that_come_and_go_are_counted(birds):
    before = described(birds)
    write_photos(birds, [f"crow/new{number}.jpg" for number in range(30)])
    now = described(birds)
    for key in ("train", "eval"):
        was, there = (data[key]["classes"][0][0] for data in (before, now))
        assert there > was + 1
        assert f"{key} has {there} photos of crow instead of {was}" in refusal(before, now)
        assert f"{key} has {was} photos of crow instead of {there}" in refusal(now, before)
    message = refusal(before, now)
    assert "finch" not in message and "owl" not in message
    assert refusal(before, now, accept=True) is None


def test_a_photo_that_is_replaced_is_noticed(birds):
    before = described(birds)
    photo = data.open(f"folder:{birds}", "train[:80%]").photos[0].path
    with open(birds / photo, "ab") as file:
        file.write(b"more")
    found = fingerprint.changes(before, described(birds))
    assert found == ([f"photos of {photo.split('/')[0]} in train are others"], False)
    numbers = [fingerprint.as_numbers(each) for each in (before, described(birds))]
    assert numbers[0].dtype == np.float64 and numbers[0].shape == (8,)
    assert not np.array_equal(*numbers)


def test_photos_that_move_within_their_class_are_said_to(birds):
    before = described(birds)
    for photo in data.open(f"folder:{birds}", "train").photos:
        target = birds / photo.path.replace("/", "/deep/")
        target.parent.mkdir(exist_ok=True)
        (birds / photo.path).rename(target)
    found, moved = fingerprint.changes(before, described(birds))
    assert not moved
    assert found[0] == "the photos of train stand in other folders"


def test_shards_that_are_others_are_noticed(digits_split, damaged_digits, numbers):
    def of(train, evaluation=None):
        held_out = evaluation.text if evaluation else ""
        return train.dataset.describe(train.text, held_out)

    before = of(digits_split("train"), digits_split("test"))
    assert fingerprint.is_description(before) and "classes" not in before["train"]
    assert before["class_names"] == list("0123456789")
    assert refusal(before, of(digits_split("train"), digits_split("test"))) is None
    shorter = of(digits_split("train[:90%]"), digits_split("test"))
    assert "train has 1294 examples instead of 1438" in refusal(before, shorter)
    last = of(digits_split("train[-1294:]"), digits_split("test"))
    assert "the files of train are others" in refusal(shorter, last)
    assert refusal(shorter, last, accept=True) is None
    # Neither the run before nor this one evaluates: nothing to say of it.
    assert refusal(before, of(digits_split("train"))) is None
    # Names of classes are not always known.
    names = of(data.open("tfds:numbers", "train", numbers))
    assert names["class_names"] is None and fingerprint.is_description(names)
    named = {**names, "class_names": list("9876543210")}
    assert fingerprint.changes(names, named) == (["the classes have names now"], False)
    assert fingerprint.changes(named, names) == (["the names of the classes are gone"], True)
    # Shards that are written again: records are known by their sizes.
    damaged = of(damaged_digits)["train"]
    assert damaged == before["train"]
    (file,) = damaged_digits.dataset.place.glob("*train.tfrecord*")
    kept = list(tf.data.TFRecordDataset(str(file)).ignore_errors().as_numpy_iterator())
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in (3 * kept)[:1438]:
            writer.write(record)
    again = data.open("digits", "train", damaged_digits.dataset.place.parents[1])
    assert "the files of train are others" in refusal(before, of(again))


def test_what_is_no_description_is_known(birds):
    found = described(birds)
    assert fingerprint.is_description({**found, "eval": None, "class_names": None})
    for change in ({"class_names": "crow"}, {"class_names": [1, 2]}, {"train": None}, {"eval": []}):
        assert not fingerprint.is_description(found | change)
    for key, value in (("digest", 7), ("examples", "many"), ("classes", [["3", "a"]])):
        assert not fingerprint.is_description(found | {"train": found["train"] | {key: value}})
    assert not any(map(fingerprint.is_description, (None, [], {}, {"class_names": None})))
