"""`python -m benchmarks input_pipeline`: what reading, decoding and augmenting images costs.

Our training and evaluation pipelines run beside references on the same JPEGs, in one process
and in turns. The comparison is of CPU time, which a busy machine and its number of cores disturb
least: pipelines like these are bound by decoding, and threads only spread it.
"""

import argparse
import gc
import os
import pathlib
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.harness import machine, progress, table

SIZE = 224
SEED = 0
ORDERED_BATCHES = 64
WARM_UP_BATCHES = 3
EXTENSIONS = (".jpg", ".jpeg")

TRAINING = f"decode|inception_crop({SIZE})|flip_lr"
EVALUATION = f"decode|resize({SIZE})|value_range(-1, 1)"
EVALUATION_CROP = f"decode|resize_small(256)|central_crop({SIZE})|value_range(-1, 1)"


class Contestant(NamedTuple):
    """A row of the table.

    Attributes:
        name: first column.
        make: function of a folder and a batch size that returns a dataset of batches.
        floor, tutorial: names of the rows that this one is compared with.
    """

    name: str
    make: Callable
    floor: str
    tutorial: str


def main(argv=None):
    """Prints the table, and writes it where `--output` says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks input_pipeline", description=__doc__
    )
    parser.add_argument("--images", required=True, help="folder of JPEGs, sub-folders included")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--batches", type=int, default=10, help="measured in every turn")
    parser.add_argument("--rounds", type=int, default=15, help="turns of every pipeline")
    parser.add_argument("--output", help="Markdown file to write the table to")
    arguments = parser.parse_args(argv)
    images = sorted(
        path
        for path in pathlib.Path(arguments.images).rglob("*")
        if path.suffix.lower() in EXTENSIONS
    )
    if not images:
        parser.error(f"expected JPEGs below {arguments.images}, found none")
    start = machine.describe(os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "all").mkdir()
        for number, path in enumerate(images):
            (folder / "all" / f"{number:06d}.jpg").symlink_to(path.resolve())
        turns = measure(folder, arguments.batch_size, arguments.batches, arguments.rounds)
    text = "\n\n".join(
        [
            report(turns),
            f"{len(images)} images, batches of {arguments.batch_size}, {arguments.rounds} rounds; "
            f"medians, ratios within a round. {start}",
        ]
    )
    print(text)
    if arguments.output:
        path = pathlib.Path(arguments.output)
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(f"{text}\n", encoding="utf-8")
        os.replace(temporary, path)
    return 0


def measure(folder, batch_size, batches, rounds):
    """Returns for every contestant a list of (CPU seconds, wall seconds) per image, a turn each."""
    datasets = {row.name: row.make(folder, batch_size) for row in CONTESTANTS}
    turns = {name: [] for name in datasets}
    with progress.Bar(rounds * len(datasets)) as bar:
        for _ in range(rounds):
            for name, dataset in datasets.items():
                bar.note(name)
                turns[name].append(_turn(dataset, batches, batches * batch_size))
                bar.advance()
    return turns


def report(turns):
    """Returns the Markdown table of what `measure` returned."""

    def ratio(name, other):
        pairs = zip(turns[other], turns[name], strict=True)
        return f"{statistics.median(theirs[0] / mine[0] for theirs, mine in pairs):.2f}"

    rows = [
        [
            row.name,
            f"{1 / statistics.median(cpu for cpu, _ in turns[row.name]):.0f}",
            f"{1 / statistics.median(wall for _, wall in turns[row.name]):.0f}",
            ratio(row.name, row.floor),
            ratio(row.name, row.tutorial),
        ]
        for row in CONTESTANTS
    ]
    header = ["pipeline", "images per CPU s", "images per s", "of decoding", "of the tutorial"]
    return table.markdown(header, rows)


def _turn(dataset, batches, images):
    _wait_until_idle()
    iterator = iter(dataset)
    for _ in range(WARM_UP_BATCHES):
        next(iterator)
    cpu, wall = _cpu_seconds(), time.perf_counter()
    for _ in range(batches):
        next(iterator)
    return (_cpu_seconds() - cpu) / images, (time.perf_counter() - wall) / images


def _wait_until_idle():
    # The previous pipeline may still be filling its buffers.
    gc.collect()
    busy = True
    while busy:
        before = _cpu_seconds()
        time.sleep(0.1)
        busy = _cpu_seconds() - before > 0.01


def _cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _ours(preprocess):
    def make(folder, batch_size):
        from training.data import pipeline

        return pipeline.train_dataset(
            name=f"folder:{folder}",
            split="train",
            preprocess=preprocess,
            batch_size=batch_size,
            seed=0,
        )

    return make


def _reference(load):
    """Makes a plain pipeline of a function of (number, path), on the images of ours, in turn."""

    def make(folder, batch_size):
        import tensorflow as tf

        from training.data import pipeline

        paths = tf.constant([str(path) for path in sorted(folder.rglob("*.jpg"))])
        order = pipeline.example_order(len(paths), SEED, 0, batch_size, range(batch_size))
        # In a list by then: what the order costs is ours alone to pay.
        numbers, indices = zip(*order.take(ORDERED_BATCHES * batch_size), strict=True)
        dataset = tf.data.Dataset.from_tensor_slices((list(numbers), tf.gather(paths, indices)))
        dataset = dataset.repeat().map(load, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    return make


def _box(shape, number):
    """The random box that ours takes of image `number`, as begin and size."""
    import tensorflow as tf

    from training.data.preprocessing import pipeline_text

    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros((0, 0, 4)),
        seed=pipeline_text.operation_seed(tf.stack([SEED, number]), 1),
        min_object_covered=0.0,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(0.05, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    return begin, size


def _decode_crop(number, path):
    import tensorflow as tf

    encoded = tf.io.read_file(path)
    begin, size = _box(tf.io.extract_jpeg_shape(encoded), number)
    window = tf.concat([begin[:2], size[:2]], axis=0)
    return tf.shape(tf.io.decode_and_crop_jpeg(encoded, window, channels=3))


def _decode_whole(number, path):
    import tensorflow as tf

    return tf.shape(tf.io.decode_jpeg(tf.io.read_file(path), channels=3))


def _tutorial_training(number, path):
    import tensorflow as tf

    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    image = tf.slice(image, *_box(tf.shape(image), number))
    image = tf.image.resize(image, (SIZE, SIZE))
    image = tf.image.stateless_random_flip_left_right(image, tf.stack([1, number]))
    return image / 127.5 - 1.0, 0


def _tutorial_evaluation(number, path):
    import tensorflow as tf

    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (SIZE, SIZE)) / 127.5 - 1.0, 0


def _keras(read_size, layers):
    """`image_dataset_from_directory`, and on its batches the `keras.layers` that are named."""

    def make(folder, batch_size):
        import keras
        import tensorflow as tf

        dataset = keras.utils.image_dataset_from_directory(
            folder,
            image_size=(read_size, read_size),
            batch_size=batch_size,
            seed=0,
            follow_links=True,
            verbose=False,
        )
        process = keras.Sequential(
            [getattr(keras.layers, name)(**options) for name, options in layers]
        )
        dataset = dataset.repeat().map(
            lambda images, labels: (process(images, training=True), labels),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return dataset.prefetch(tf.data.AUTOTUNE)

    return make


_RESCALING = ("Rescaling", {"scale": 1 / 127.5, "offset": -1.0})
_FLOOR, _TUTORIAL = "training: decode the crop only", "training: tutorial"
_EVAL_FLOOR, _EVAL_TUTORIAL = "evaluation: decode only", "evaluation: tutorial"

CONTESTANTS = [
    *(
        Contestant(name, make, _FLOOR, _TUTORIAL)
        for name, make in (
            (_FLOOR, _reference(_decode_crop)),
            ("training: ours", _ours(f"{TRAINING}|value_range(-1, 1)")),
            ("training: ours, uint8", _ours(f"{TRAINING}|to_uint8")),
            (_TUTORIAL, _reference(_tutorial_training)),
            (
                "training: keras directory + layers",
                _keras(
                    256,
                    [
                        ("RandomCrop", {"height": SIZE, "width": SIZE}),
                        ("RandomFlip", {"mode": "horizontal"}),
                        _RESCALING,
                    ],
                ),
            ),
        )
    ),
    *(
        Contestant(name, make, _EVAL_FLOOR, _EVAL_TUTORIAL)
        for name, make in (
            (_EVAL_FLOOR, _reference(_decode_whole)),
            ("evaluation: ours, resize", _ours(EVALUATION)),
            ("evaluation: ours, resize_small + crop", _ours(EVALUATION_CROP)),
            (_EVAL_TUTORIAL, _reference(_tutorial_evaluation)),
            ("evaluation: keras directory + layers", _keras(SIZE, [_RESCALING])),
        )
    ),
]


if __name__ == "__main__":
    sys.exit(main())
