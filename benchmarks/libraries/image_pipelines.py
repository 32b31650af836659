"""The pipelines of images: ours, TensorFlow's, and Keras's.

Each maker takes a folder of JPEGs and a batch size and returns a `tf.data.Dataset` of batches.
"""

SIZE = 224
SEED = 0
ORDERED_BATCHES = 64


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

        from training.data.example_order import example_order

        paths = tf.constant([str(path) for path in sorted(folder.rglob("*.jpg"))])
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
_RANDOM = (
    ("RandomCrop", {"height": SIZE, "width": SIZE}),
    ("RandomFlip", {"mode": "horizontal"}),
    _RESCALING,
)
_CROP = f"decode|inception_crop({SIZE})|flip_lr"

# What reading and decoding alone take, and what TensorFlow's guides do, in each part below.
FLOOR = {"training": "decode the crop only", "evaluation": "decode only"}
TUTORIAL = "tutorial"
PIPELINES = {
    "training": {
        FLOOR["training"]: _reference(_decode_crop),
        "ours": _ours(f"{_CROP}|value_range(-1, 1)"),
        "ours, uint8": _ours(f"{_CROP}|to_uint8"),
        TUTORIAL: _reference(_tutorial_training),
        "keras directory + layers": _keras(256, _RANDOM),
    },
    "evaluation": {
        FLOOR["evaluation"]: _reference(_decode_whole),
        "ours, resize": _ours(f"decode|resize({SIZE})|value_range(-1, 1)"),
        "ours, resize_small + crop": _ours(
            f"decode|resize_small(256)|central_crop({SIZE})|value_range(-1, 1)"
        ),
        TUTORIAL: _reference(_tutorial_evaluation),
        "keras directory + layers": _keras(SIZE, [_RESCALING]),
    },
}
