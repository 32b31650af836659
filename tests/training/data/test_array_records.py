"""ArrayRecord files are read as TFRecord files are: the same examples under the same ids."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from training.data import array_records, digits, load_dataset, pipeline
from training.data.record_ranges import RecordRanges
from training.errors import UsageError

pytest.importorskip("array_record")


@pytest.fixture(scope="module")
def array_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("array_record")
    tfds.disable_progress_bar()
    digits.SklearnDigits(data_dir=folder, file_format="array_record").download_and_prepare()
    assert list(folder.rglob("*array_record*"))
    return folder


@pytest.mark.parametrize("split", ["train", "train[10%:95%]", "test[:7]+train[:3]"])
def test_the_same_examples(array_dir, digits_dir, split):
    ours, theirs = (
        list(load_dataset.load_dataset("digits", split, data_dir=folder, with_ids=True))
        for folder in (array_dir, digits_dir)
    )
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one["image"], two["image"])
        assert int(one["label"]) == int(two["label"])
        assert one["id"].numpy().replace(b"array_record", b"tfrecord") == two["id"].numpy()


@pytest.mark.parametrize("shuffle", ["full", "blocks"])
def test_the_same_batches(array_dir, digits_dir, shuffle):
    ours, theirs = (
        pipeline.train_dataset(
            name="digits",
            split="train",
            preprocess="decode|resize(8)|value_range(-1,1)",
            batch_size=64,
            seed=1,
            data_dir=folder,
            shuffle=shuffle,
            start_step=20,
        ).take(3)
        for folder in (array_dir, digits_dir)
    )
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one["image"], two["image"])


def test_files_that_cannot_be_read_are_explained(array_dir):
    (file,) = map(str, array_dir.rglob("*train.array_record*"))
    with pytest.raises(ValueError, match=r"Expected 7 records .* Found 1438"):
        array_records.reader(RecordRanges([file], [7], [0], [7]))
    with pytest.raises(UsageError, match="Expected ArrayRecord files of this machine"):
        array_records.reader(RecordRanges(["gs://bucket/a.array_record"], [7], [0], [7]))
