import dataclasses
import io

import numpy as np
from PIL import Image

from keras_vit.training import data
from keras_vit.training.data.skip_unreadable import counter_for
from keras_vit.training.data.tf_data_batches import eval_dataset, train_dataset

RANDOM = "decode|resize(12)|random_crop(10)|flip_lr|value_range(-1,1)"
PLAIN = "decode|resize((8, 8))|value_range(0,255)"


def write_photos(root, names, pixels_of=None):
    """Writes photos, PNGs if no suffix says else: `pixels_of` a number, or noise of its height."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = pixels_of(number) if pixels_of else rng.integers(0, 256, (10 + number % 40, 8, 3))
        buffer, kind = io.BytesIO(), Image.registered_extensions().get(path.suffix, "PNG")
        Image.fromarray(pixels.astype(np.uint8)).save(buffer, kind)
        path.write_bytes(buffer.getvalue())


def write_set(name, folder, num_classes, splits, *, version="1.0.0", num_shards=None, **options):
    import tensorflow_datasets as tfds

    def examples(pairs):
        for number, (pixels, label) in enumerate(pairs):
            yield number, {"image": pixels.astype(np.uint8), "label": label}

    label = tfds.features.ClassLabel(num_classes=num_classes)
    features = {"image": tfds.features.Image(shape=(4, 4, 3)), "label": label}
    features = tfds.features.FeaturesDict(features)
    splits = {split: examples(pairs) for split, pairs in splits.items()}
    shards = tfds.download.DownloadConfig(num_shards=num_shards)
    tfds.disable_progress_bar()
    store = tfds.dataset_builders.store_as_tfds_dataset
    store(name, version, features, splits, data_dir=folder, download_config=shards, **options)


def train(split, text=RANDOM, on_error="raise", skip_counter=None, **settings):
    counter = counter_for(on_error, skip_counter)
    settings = {"batch_size": 32, "seed": 5, "skip_counter": counter, **settings}
    return train_dataset(split, split.preprocess(text), **settings)


def take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def evaluate(split, text=PLAIN, on_error="raise", skip_counter=None, **settings):
    settings = {"batch_size": 64, **settings, "skip_counter": counter_for(on_error, skip_counter)}
    return list(eval_dataset(split, split.preprocess(text), **settings).as_numpy_iterator())


def joined(batches):
    return {key: np.concatenate([one[key] for one in batches]) for key in batches[0]}


def assert_equal(first, second):
    assert len(first) == len(second) > 0
    for one, two in zip(first, second, strict=True):
        np.testing.assert_equal(one, two)


def read_by(split, **changes):
    """Returns the same split, whose reader is changed: `remote` is as if files were in a store."""
    found = dataclasses.replace(split)
    found.reader = split.reader._replace(**changes)
    return found


def ids(name, split="train", data_dir=None):
    found = data.open(name, split, data_dir)
    return [found.example_id(index) for index in range(found.num_examples)]


def contents(name, split="train", data_dir=None):
    dataset = data.load_dataset(name, split, data_dir=data_dir)
    return sorted((one["image"].numpy().tobytes(), int(one["label"])) for one in dataset)


def error_line(capsys):
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error
