import pytest
import tensorflow_datasets as tfds
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from training.data import splits
from training.data.splits import Range

SIZES = {"train": 1_438, "test": 359}


def test_percent_and_absolute_slices():
    assert splits.num_examples("train[:98%]", SIZES) == 1_409
    assert splits.num_examples("train[98%:]", SIZES) == 29
    assert splits.resolve("train[-10:]", SIZES) == [Range("train", 1_428, 1_438)]
    assert splits.resolve("test[:200]+train[5:7]", SIZES) == [
        Range("test", 0, 200),
        Range("train", 5, 7),
    ]


def test_slices_of_aliases_cross_their_parts():
    aliases = {"trainval": "train[:100]+test[:50]"}
    assert splits.resolve("trainval[90:120]", SIZES, aliases) == [
        Range("train", 90, 100),
        Range("test", 0, 20),
    ]


def test_an_alias_may_carry_a_native_name():
    # VTAB's `train` is a part of TFDS's.
    assert splits.num_examples("train", SIZES, {"train": "train[:1000]"}) == 1_000


@settings(max_examples=60, deadline=None)
@given(
    start=st.one_of(st.none(), st.integers(-359, 359), st.integers(0, 100).map(lambda p: f"{p}%")),
    stop=st.one_of(st.none(), st.integers(-359, 359), st.integers(0, 100).map(lambda p: f"{p}%")),
)
def test_slices_name_what_tfds_names(digits_dir, start, stop):
    # TFDS reads neither a slice without ends nor one that mixes numbers and percentages.
    assume(len({type(end) for end in (start, stop) if end is not None}) == 1)
    # TFDS does not take an empty slice, nor notice one that ends before it starts.
    assume(start is not None or stop is not None)
    text = f"test[{'' if start is None else start}:{'' if stop is None else stop}]"
    info = tfds.builder_from_directory(digits_dir / "sklearn_digits" / "1.0.0").info
    theirs = info.splits[text].file_instructions
    expected = [Range("test", one.skip, one.skip + one.take) for one in theirs if one.take > 0]
    if sum(one.take for one in theirs) < 1:
        with pytest.raises(ValueError, match="is empty"):
            splits.resolve(text, SIZES)
    else:
        assert splits.resolve(text, SIZES) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trian", "Unknown split 'trian'. Expected one of test, train"),
        ("train[:2000]", "beyond the 1438 examples"),
        ("train[:200%]", "up to 100%"),
        ("train[5]", "Expected a split such as"),
        ("train[7:7]", "is empty"),
    ],
)
def test_wrong_texts_are_explained(text, message):
    with pytest.raises(ValueError, match=message.replace("%", "%")):
        splits.resolve(text, SIZES)
