import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_vit.training import data
from keras_vit.training.data import records
from keras_vit.training.data.sets import known_datasets
from tests.training.data.helpers import write_set


def fake_value(feature, rng):
    if isinstance(feature, dict | tfds.features.FeaturesDict):
        return {key: fake_value(inner, rng) for key, inner in feature.items()}
    if isinstance(feature, tfds.features.Image):
        height, width, channels = (size or 16 + 8 * k for k, size in enumerate(feature.shape))
        return rng.integers(0, 256, (height, width, channels)).astype(np.uint8)
    if isinstance(feature, tfds.features.ClassLabel):
        return int(rng.integers(feature.num_classes))
    if isinstance(feature, tfds.features.BBoxFeature):
        return tfds.features.BBox(0.1, 0.2, 0.3, 0.4)
    if isinstance(feature, tfds.features.Sequence):
        return [fake_value(feature.feature, rng) for _ in range(rng.integers(3, 11))]
    if isinstance(feature, tfds.features.Text):
        return f"text{rng.integers(1000)}"
    return rng.uniform(1, 50, feature.shape).astype(feature.np_dtype)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Returns `tiny(builder, {split: examples}) -> data_dir`; missing features are random."""

    def write(name, examples):
        data_dir, rng = tmp_path_factory.mktemp("tfds"), np.random.default_rng(0)
        name, _, config = name.partition("/")
        options = {"data_dir": data_dir, "config": config or None}
        builder = tfds.builder_cls(name)(**options)
        features = builder.info.features

        def filled(items):
            for number, item in enumerate(items):
                rest = features.keys() - item.keys()
                yield number, item | {key: fake_value(features[key], rng) for key in sorted(rest)}

        splits = {split: filled(items) for split, items in examples.items()}
        tfds.disable_progress_bar()
        store = tfds.dataset_builders.store_as_tfds_dataset
        store(name, builder.version, features, splits, **options)
        return data_dir

    return write


def write_numbers(folder, file_format):
    pairs = ((np.full((4, 4, 3), number % 256), number) for number in range(700))
    write_set("numbers", folder, 700, {"train": pairs}, num_shards=4, file_format=file_format)
    return folder


@pytest.fixture(scope="session")
def numbers(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("numbers"), "tfrecord")


@pytest.fixture(scope="session")
def number_arrays(tmp_path_factory):
    pytest.importorskip("array_record")
    return write_numbers(tmp_path_factory.mktemp("array_record"), "array_record")


@pytest.fixture
def resize_row(monkeypatch):
    def resize(name, sizes):
        row = dataclasses.replace(known_datasets.DATASETS[name], sizes=sizes)
        monkeypatch.setitem(known_datasets.DATASETS, name, row)

    return resize


@pytest.fixture(scope="session")
def digits_split(data_dir):
    return data.open_dataset("digits", data_dir).split


@pytest.fixture
def damaged_digits(data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    (file,) = map(str, tmp_path.rglob("*train.tfrecord*"))
    offset = int(records.offsets([file], [1438])[0][700])
    with open(file, "r+b") as stream:
        stream.seek(offset + 40)
        stream.write(b"damaged")
    return data.open("digits", "train", tmp_path)
