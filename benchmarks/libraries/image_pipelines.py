"""The pipelines of images: ours, those of TensorFlow's and TFDS's guides, and Keras's.

Each maker takes a folder that `prepare` made and a batch size, and returns an infinite
`tf.data.Dataset` of batches.
"""

import contextlib
import pathlib
import sys
from collections.abc import Callable, Sequence

SEED = 0
ORDERED_BATCHES = 64
_PHOTOS, _TFDS, _NAME = "photos", "tfds", "photos"


def prepare(images: Sequence[pathlib.Path], folder: pathlib.Path) -> None:
    """Puts JPEGs below `folder`: as links to the files, and as a TFRecord file of TFDS."""
    from training.data.prepare import prepare_photos

    (folder / _PHOTOS / "all").mkdir(parents=True)
    for number, path in enumerate(images):
        (folder / _PHOTOS / "all" / f"{number:06d}.jpg").symlink_to(path.resolve())
    # Standard output is for tables.
    with contextlib.redirect_stdout(sys.stderr):
        prepare_photos(f"folder:{folder / _PHOTOS}", _NAME, folder / _TFDS)


def _our_training(preprocess, reduced_decoding=0.0, **changes):
    def make(folder, batch_size):
        from training.data import open_dataset

        split = open_dataset(f"folder:{folder / _PHOTOS}").split("train")
        operations = split.preprocess(preprocess, reduced_decoding)
        return split.train(operations, batch_size=batch_size, seed=SEED, **changes)

    return make


def _our_evaluation(preprocess, reduced_decoding=0.0):
    def make(folder, batch_size):
        from training.data import open_dataset

        split = open_dataset(f"tfds:{_NAME}", folder / _TFDS).split("train")
        operations = split.preprocess(preprocess, reduced_decoding)
        return split.evaluate(operations, batch_size=batch_size).repeat()

    return make


def _reference(load):
    """Makes a plain pipeline of a function of (number, path), on the images of ours, in turn."""

    def make(folder, batch_size):
        import tensorflow as tf

        from training.data.order import example_order

        photos = folder / _PHOTOS
        paths = tf.constant([str(path) for path in sorted(photos.rglob("*.jpg"))])
        order = example_order(len(paths), SEED, 0, batch_size, range(batch_size))
        # In a list by then: what the order costs is ours alone to pay.
        numbers, indices = zip(*order.take(ORDERED_BATCHES * batch_size), strict=True)
        dataset = tf.data.Dataset.from_tensor_slices((list(numbers), tf.gather(paths, indices)))
        dataset = dataset.repeat().map(load, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    return make


def _box(shape, number):
    """The random box that ours takes of image `number`, as begin and size."""
    import tensorflow as tf

    from training.data.preprocessing.operation import operation_seed

    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros((0, 0, 4)),
        seed=operation_seed(tf.stack([SEED, number]), 1),
        min_object_covered=0.0,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(0.05, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    return begin, size


def _crop(number, path):
    import tensorflow as tf

    encoded = tf.io.read_file(path)
    begin, size = _box(tf.io.extract_jpeg_shape(encoded), number)
    window = tf.concat([begin[:2], size[:2]], axis=0)
    return tf.io.decode_and_crop_jpeg(encoded, window, channels=3)


def _decode_crop(number, path):
    import tensorflow as tf

    return tf.shape(_crop(number, path))


def _resize_crop(size):
    def load(number, path):
        import tensorflow as tf

        return tf.image.resize(_crop(number, path), (size, size))

    return load


def _decode_whole(number, path):
    import tensorflow as tf

    return tf.shape(tf.io.decode_jpeg(tf.io.read_file(path), channels=3))


def _tutorial_training(size):
    def load(number, path):
        import tensorflow as tf

        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.slice(image, *_box(tf.shape(image), number))
        image = tf.image.resize(image, (size, size))
        image = tf.image.stateless_random_flip_left_right(image, tf.stack([1, number]))
        return image / 127.5 - 1.0, 0

    return load


def _tutorial_evaluation(resize):
    """Makes the pipeline of TFDS's guide: `load`, `map`, `batch`, `prefetch`."""

    def make(folder, batch_size):
        import tensorflow as tf
        import tensorflow_datasets as tfds

        # One pass is measured over and over, which decoded images in memory would not be.
        once = tfds.ReadConfig(try_autocache=False)
        dataset = tfds.load(_NAME, split="train", data_dir=folder / _TFDS, read_config=once)
        dataset = dataset.map(
            lambda example: (resize(example["image"]) / 127.5 - 1.0, example["label"]),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE).repeat()

    return make


def _squashed(size):
    def resize(image):
        import tensorflow as tf

        return tf.image.resize(image, (size, size))

    return resize


def _center(small, size):
    def resize(image):
        import tensorflow as tf

        height, width = (tf.cast(tf.shape(image)[k], tf.float32) for k in (0, 1))
        factor = small / tf.minimum(height, width)
        shape = tf.cast(tf.round(tf.stack([height, width]) * factor), tf.int32)
        return tf.image.resize_with_crop_or_pad(tf.image.resize(image, shape, "area"), size, size)

    return resize


def _keras(read_size, layers):
    """`image_dataset_from_directory`, and on its batches the `keras.layers` that are named."""

    def make(folder, batch_size):
        import keras
        import tensorflow as tf

        dataset = keras.utils.image_dataset_from_directory(
            folder / _PHOTOS,
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
# What reading and decoding alone take, and what guides do, in each part below.
FLOOR, TUTORIAL = "decode only", "tutorial"
OURS, BYTES, REDUCED = "ours", "ours, uint8", "ours, reduced decoding"


def pipelines(size: int = 224) -> dict[str, dict[str, Callable]]:
    """Returns the makers by their part and name, of images of `size` x `size`."""
    small = round(size * 256 / 224)
    crop = f"decode|inception_crop({size})|flip_lr"
    to_range = "value_range(-1, 1)"
    squash = f"decode|resize({size})|{to_range}"
    center = f"decode|resize_small({small})|central_crop({size})|{to_range}"
    random = (
        ("RandomCrop", {"height": size, "width": size}),
        ("RandomFlip", {"mode": "horizontal"}),
        _RESCALING,
    )
    return {
        "training": {
            FLOOR: _reference(_decode_crop),
            "decode and resize only": _reference(_resize_crop(size)),
            OURS: _our_training(f"{crop}|{to_range}"),
            BYTES: _our_training(f"{crop}|to_uint8"),
            REDUCED: _our_training(f"{crop}|{to_range}", reduced_decoding=1.0),
            "ours, cache": _our_training(f"{crop}|{to_range}", cache=True),
            TUTORIAL: _reference(_tutorial_training(size)),
            "keras directory + layers": _keras(small, random),
        },
        "evaluation, resize": {
            FLOOR: _reference(_decode_whole),
            OURS: _our_evaluation(squash),
            REDUCED: _our_evaluation(squash, reduced_decoding=1.0),
            TUTORIAL: _tutorial_evaluation(_squashed(size)),
            "keras directory + layers": _keras(size, [_RESCALING]),
        },
        "evaluation, center crop": {
            FLOOR: _reference(_decode_whole),
            OURS: _our_evaluation(center),
            REDUCED: _our_evaluation(center, reduced_decoding=1.0),
            TUTORIAL: _tutorial_evaluation(_center(small, size)),
        },
    }
