import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from training.data.skip_counter import SkipCounter

from training.data import evaluation_pass, pipeline, random_access, tfrecords


@pytest.fixture(scope="module")
def four_files(tmp_path_factory):
    class Numbers(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"image": tfds.features.Image(shape=(4, 4, 3)), "label": tf.int64}
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(
                    features | {"label": tfds.features.ClassLabel(num_classes=2)}
                ),
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for number in range(700):
                yield number, {"image": np.full((4, 4, 3), number % 256, np.uint8), "label": 0}

    folder = tmp_path_factory.mktemp("numbers")
    tfds.disable_progress_bar()
    builder = Numbers(data_dir=folder)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=4))
    return folder


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("split", ["train", "train[100:400]", "train[50:550]+train[:1]"])
def test_neighbors_are_read_in_stored_order(four_files, monkeypatch, workers, split, remote):
    monkeypatch.setattr(tfrecords, "is_remote", lambda path: remote)
    source = random_access.open_source("tfds:numbers", split, four_files)
    total, size = source.num_examples, 150 // workers
    assert source.stream
    for worker in range(workers):
        share = range(worker * size, (worker + 1) * size)
        indices = list(evaluation_pass.indices(total, 150, share).as_numpy_iterator())
        assert indices == [index for index in range(total) if index % 150 in share]
        runs = evaluation_pass.runs(total, 150, share)
        records = list(source.stream(runs).as_numpy_iterator())
        assert records == [source.record(tf.constant(index)).numpy() for index in indices]


def evaluate(data_dir, **changes):
    batches = pipeline.eval_dataset(
        name="digits",
        split="train",
        preprocess="decode|resize(8)",
        batch_size=200,
        data_dir=data_dir,
        **changes,
    )
    parts = list(batches.as_numpy_iterator())
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def test_evaluation_reads_no_record_alone(digits_dir, monkeypatch):
    monkeypatch.setattr(tfrecords, "read_record", lambda path, offset: tf.constant(b""))
    assert evaluate(digits_dir)["mask"].sum() == 1438


def test_a_damaged_record_costs_its_neighbors_nothing(digits_dir, damaged_digits):
    whole = evaluate(digits_dir)
    with pytest.raises(tf.errors.DataLossError):
        evaluate(damaged_digits)
    counter = SkipCounter()
    skipping = evaluate(damaged_digits, on_error="skip", skip_counter=counter)
    assert counter.examples == {"sklearn_digits-train.tfrecord-00000-of-00001__700": 1}
    for key, values in whole.items():
        assert not skipping[key][700].any()
        others = np.arange(len(values)) != 700
        np.testing.assert_array_equal(skipping[key][others], values[others])
