"""Images per second of reading, decoding and augmenting, against other pipelines.

Our training and evaluation pipelines run beside references on the same JPEGs, in one process and in
turns. The comparison is of CPU time, which a busy machine and its number of cores disturb least:
pipelines like these are bound by decoding, and threads only spread it.
"""

import argparse
import contextlib
import gc
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import tensorflow as tf

from benchmarks.harness import interleaved
from benchmarks.harness.command_line import add_shared, machine, show
from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.data import open_dataset
from keras_vit.training.data.order import example_order
from keras_vit.training.data.preprocessing.geometry import cut, inception_crop
from keras_vit.training.data.preprocessing.parse_operations import operation_seed
from keras_vit.training.data.sets.prepare_datasets import prepare_photos
from keras_vit.training.data.tf_data_batches import eval_dataset, train_dataset
from keras_vit.training.errors import UsageError

WARM_UP_BATCHES = 3
SEED = 0
ORDERED_BATCHES = 64
_PHOTOS, _TFDS, _NAME = "photos", "tfds", "photos"
# Each part has reading and decoding alone, ours, and the pipelines of guides.
FLOOR, TUTORIAL = "decode only", "tutorial"
OURS, REDUCED = "ours", "ours, reduced decoding"


def add_options(parser: CommandParser) -> None:
    text = "folder of JPEGs, sub-folders included"
    parser.add_argument("--images", required=True, help=text)
    add_shared(parser, image_size=224, batch_size=50, batches=10, rounds=15)


def run(options: argparse.Namespace) -> None:
    images, batch_size = options.images, options.batch_size
    found = pathlib.Path(images).rglob("*")
    files = sorted(path for path in found if path.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise UsageError(f"Expected JPEGs below {images}. Found none")
    start = machine()
    makers = pipelines(options.image_size)
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        _prepare(files, folder)
        calls = {
            (kind, name): partial(_turn, make(folder, batch_size), options.batches, batch_size)
            for kind, named in makers.items()
            for name, make in named.items()
        }
        turns = interleaved.measure(calls, options.rounds)
        changes = [
            _moved_by_reduced_decoding(kind, named, folder, len(files))
            for kind, named in makers.items()
        ]
    show(rates(turns))
    show(changes)
    print(
        f"{len(files)} images, batches of {batch_size}, {options.image_size} pixels, "
        f"{options.rounds} rounds; medians, ratios within a round. {start}"
    )


def _turn(dataset, batches, batch_size):
    """Returns the CPU time per image of so many batches, after some that are not measured."""
    # The previous pipeline may still be filling its buffers.
    gc.collect()
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(0.1)
        busy = time.process_time() - before > 0.01
    iterator = iter(dataset)
    for _ in range(WARM_UP_BATCHES):
        next(iterator)
    start = time.process_time()
    for _ in range(batches):
        next(iterator)
    return (time.process_time() - start) / (batches * batch_size)


def rates(turns: Mapping[tuple[str, str], Sequence[float]]) -> list[dict[str, str]]:
    """Returns the rows of the seconds per image of every pipeline, by its part and name."""
    rows = []
    for (kind, name), seconds in turns.items():
        floor, _ = interleaved.ratio(turns[kind, FLOOR], seconds)
        tutorial, quartiles = interleaved.ratio(turns[kind, TUTORIAL], seconds)
        rows.append(
            {
                "pipeline": f"{kind}: {name}",
                "images per CPU s": f"{1 / statistics.median(seconds):.0f}",
                "of decoding": floor,
                "of the tutorial": tutorial,
                "quartiles": quartiles,
            }
        )
    return rows


def _moved_by_reduced_decoding(kind, makers, folder, images):
    """Returns how far reduced decoding moves the pixels of so many images of a pipeline."""
    whole, reduced = (next(iter(makers[name](folder, images))) for name in (OURS, REDUCED))
    moved = abs(whole["image"] - reduced["image"]).numpy() * 127.5
    return {
        "reduced decoding": kind,
        "mean difference of 255": f"{moved.mean():.2f}",
        "root mean square": f"{(moved**2).mean() ** 0.5:.2f}",
    }


def _prepare(images, folder):
    """Puts JPEGs below `folder`: as links to the files, and as a TFRecord file of TFDS."""
    (folder / _PHOTOS / "all").mkdir(parents=True)
    for number, path in enumerate(images):
        (folder / _PHOTOS / "all" / f"{number:06d}.jpg").symlink_to(path.resolve())
    # Standard output is for tables.
    with contextlib.redirect_stdout(sys.stderr):
        prepare_photos(f"folder:{folder / _PHOTOS}", _NAME, folder / _TFDS)


def _our_training(preprocess, folder, batch_size, reduced_decoding=0.0, cache="off"):
    split = open_dataset(f"folder:{folder / _PHOTOS}").split("train")
    operations = split.preprocess(preprocess, reduced_decoding)
    return train_dataset(split, operations, batch_size=batch_size, seed=SEED, cache=cache)


def _our_evaluation(preprocess, folder, batch_size, reduced_decoding=0.0):
    split = open_dataset(f"tfds:{_NAME}", folder / _TFDS).split("train")
    operations = split.preprocess(preprocess, reduced_decoding)
    return eval_dataset(split, operations, batch_size=batch_size).repeat()


def _reference(load, folder, batch_size):
    """Maps a function of (number, encoded) over the images of ours, in the same order."""
    paths = tf.constant([str(path) for path in sorted((folder / _PHOTOS).rglob("*.jpg"))])
    order = example_order(len(paths), SEED, 0, batch_size, range(batch_size))
    # In a list, so that ours alone pays for the order.
    numbers, indices = zip(*order.take(ORDERED_BATCHES * batch_size), strict=True)
    dataset = tf.data.Dataset.from_tensor_slices((list(numbers), tf.gather(paths, indices)))
    dataset = dataset.repeat().map(
        lambda number, path: load(number, tf.io.read_file(path)),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return dataset.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def _box(shape, number):
    """Returns the random box that ours takes of image `number`: top, left, height, width."""
    return inception_crop(1).box(shape, operation_seed(tf.stack([SEED, number]), 1))


# Their shapes alone are made into batches.
def _decode_whole(number, encoded):
    return tf.shape(tf.io.decode_jpeg(encoded, channels=3))


def _decode_crop(number, encoded):
    window = _box(tf.io.extract_jpeg_shape(encoded), number)
    return tf.shape(tf.io.decode_and_crop_jpeg(encoded, window, channels=3))


def _tutorial_training(size, number, encoded):
    image = tf.io.decode_jpeg(encoded, channels=3)
    image = cut(image, _box(tf.shape(image), number))
    image = tf.image.resize(image, (size, size))
    image = tf.image.stateless_random_flip_left_right(image, tf.stack([1, number]))
    return image / 127.5 - 1.0, 0


def _tutorial_evaluation(size, folder, batch_size):
    """The pipeline of TFDS's guide: `load`, `map`, `batch`, `prefetch`."""
    import tensorflow_datasets as tfds

    # One pass is measured over and over, which decoded images in memory would not be.
    once = tfds.ReadConfig(try_autocache=False)
    dataset = tfds.load(_NAME, split="train", data_dir=folder / _TFDS, read_config=once)

    def load(example):
        return tf.image.resize(example["image"], (size, size)) / 127.5 - 1.0, example["label"]

    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE).repeat()


def pipelines(size: int = 224) -> dict[str, dict[str, Callable]]:
    """Returns the makers by their part and name, of images of `size` x `size`.

    A maker's last arguments are the folder of `_prepare` and a batch size. It returns an infinite
    `tf.data.Dataset` of batches. The references are those of TensorFlow's and TFDS's guides.
    """
    to_range = "value_range(-1, 1)"
    ours = partial(_our_training, f"decode|inception_crop({size})|flip_lr|{to_range}")
    squash = f"decode|resize({size})|{to_range}"
    return {
        "training": {
            FLOOR: partial(_reference, _decode_crop),
            OURS: ours,
            REDUCED: partial(ours, reduced_decoding=1.0),
            "ours, cache": partial(ours, cache="on"),
            TUTORIAL: partial(_reference, partial(_tutorial_training, size)),
        },
        "evaluation": {
            FLOOR: partial(_reference, _decode_whole),
            OURS: partial(_our_evaluation, squash),
            REDUCED: partial(_our_evaluation, squash, reduced_decoding=1.0),
            TUTORIAL: partial(_tutorial_evaluation, size),
        },
    }
