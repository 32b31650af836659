"""Input pipelines that are pure functions of (seed, step).

The order of the examples is a function of (seed, epoch), see `training.data.example_order`, and any
example is read alone, see `training.data.tfrecords`. Position g = step · batch_size + i of the
run therefore determines the example, its crop and its augmentation, whatever the number of
hosts or workers, and a run starts at any step without reading what it skips.
"""

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from training.data import (
    block_reads,
    decoded_images,
    evaluation_pass,
    random_access,
    unreadable_examples,
)
from training.data.example_order import example_order, order_in_pieces
from training.data.graph import as_it_stands
from training.data.preprocessing.operation import parse
from training.data.preprocessing.pixels_and_labels import one_hot
from training.data.preprocessing.preprocess import Preprocess
from training.data.skip_counter import SkipCounter

_FOREVER = 2**62
# That decode about as many images as one thread copies into batches.
_CORES_PER_BATCH = 16


def train_dataset(
    *,
    name: str,
    split: str,
    preprocess: str,
    batch_size: int,
    seed: int,
    num_classes: int | None = None,
    data_dir: str | os.PathLike | None = None,
    start_step: int = 0,
    num_input_pipelines: int = 1,
    input_pipeline_id: int = 0,
    mixup_p: float = 0.0,
    on_error: str = "raise",
    skip_counter: SkipCounter | None = None,
    shuffle: str = "full",
    reduced_decoding: float = 0.0,
    cache: bool = False,
) -> tf.data.Dataset:
    """Returns the infinite training data of this worker.

    Element k is this worker's share of the global batch of step `start_step + k`:
    `{"image": float32 (batch_size // num_input_pipelines, height, width, channels), "label":
    float32 (…, num_classes)}`. The shares of all workers, in the order of their ids, are the
    global batch. Every epoch visits every example once, in an order of its own.

    Args:
        name: name of the data set, see `training.data.dataset_lookup`.
        split: split text, such as "train[:98%]".
        preprocess: text of operations, see `training.data.preprocessing.operation`.
        batch_size: global batch size.
        seed: any integer; the same seed gives the same data.
        num_classes: width of the labels; by default the data set's.
        data_dir: folder of prepared data sets; empty or None is the default of TFDS.
        start_step: step to start at.
        num_input_pipelines: number of workers that share a batch; divides `batch_size`.
        input_pipeline_id: this worker, 0-based.
        mixup_p: parameter of mixup's Beta distribution, 0 for none.
        on_error: "raise", or "skip" to train on the next example in place of an unreadable one.
        skip_counter: counts what is skipped.
        shuffle: how epochs are ordered, a name of `training.data.example_order.ORDERS`.
        reduced_decoding: 0, or how many times the rows and columns wanted a JPEG keeps at least
            that is decoded at a fraction of its size, see
            `training.data.preprocessing.decoding`.
        cache: whether decoded images stay in memory, see `training.data.decoded_images`.

    Raises:
        NotPreparedError: if the data set is not on disk; the message says how to get it.
        ValueError: for arguments that do not fit together.
        UsageError: if decoded images would not find room in memory.
    """
    share = _share(batch_size, num_input_pipelines, input_pipeline_id)
    skipped = unreadable_examples.counter_for(on_error, skip_counter)
    source = random_access.open_source(name, split, data_dir)
    process = source.preprocess(preprocess, reduced_decoding)
    batch_operations = list(process.batch_operations)
    if mixup_p:
        batch_operations += parse(f"mixup({mixup_p})")
    load = _loader(source, process, num_classes or source.spec.num_classes)
    if cache:
        load = _cached(load, source, process)

    def example(position, index, record=None):
        def prepare(one):
            def read():
                if record is None:
                    return source.record(one)
                given = (one == index) & (record != block_reads.ALONE)
                return tf.cond(given, lambda: record, lambda: source.record(one))

            image, encoded = load(one, read)
            image = process(image, _seed(seed, position))
            return {"image": image, "label": encoded["label"]}

        if skipped:
            return unreadable_examples.load_or_next(prepare, index, source, skipped)
        return prepare(index)

    slots = list(range(share.start, share.stop))
    if batch_operations:
        # Each image is blended with the one before it in the global batch. That of a share's
        # first image belongs to another worker, so this worker reads it as well.
        slots = sorted({*slots, (share.start - 1) % batch_size})
    start = start_step * batch_size
    order = (source.num_examples, seed, start, batch_size, slots, shuffle, num_input_pipelines)
    if shuffle == "blocks" and source.records:
        dataset = block_reads.with_records(order_in_pieces(*order), source)
    else:
        dataset = example_order(*order)
    dataset = _map(dataset, example)
    _check_static(dataset.element_spec["image"].shape, preprocess)
    dataset = _batch(dataset, len(slots))
    if batch_operations:
        steps = tf.data.Dataset.range(start_step, _FOREVER)
        dataset = _map(
            tf.data.Dataset.zip(steps, dataset),
            lambda step, batch: _blend(
                batch, batch_operations, _seed(~seed, step), len(share), share.start > 0
            ),
        )
    return _finish(dataset)


def eval_dataset(
    *,
    name: str,
    split: str,
    preprocess: str,
    batch_size: int,
    num_classes: int | None = None,
    data_dir: str | os.PathLike | None = None,
    num_input_pipelines: int = 1,
    input_pipeline_id: int = 0,
    on_error: str = "raise",
    skip_counter: SkipCounter | None = None,
    reduced_decoding: float = 0.0,
) -> tf.data.Dataset:
    """Returns one pass over a split in its stored order, in batches of one static shape.

    Elements are `{"image": (batch_size // num_input_pipelines, height, width, channels),
    "label": float32 (…, num_classes), "mask": float32 (…,)}`. The last batch is padded with
    zeros; the mask is 0 there, on images without any label (ReaL) and, with
    `on_error="skip"`, on unreadable ones, so its sum is the number of images to divide by.
    Every worker yields the same number of batches.

    Random operations draw from fixed seeds. For the other arguments see `train_dataset`.
    """
    share = _share(batch_size, num_input_pipelines, input_pipeline_id)
    skipped = unreadable_examples.counter_for(on_error, skip_counter)
    source = random_access.open_source(name, split, data_dir)
    process = source.preprocess(preprocess, reduced_decoding)
    if process.batch_operations:
        raise ValueError(f"Expected no mixup in evaluation. Received: {preprocess!r}.")
    load = _loader(source, process, num_classes or source.spec.num_classes)

    def prepare(index, *record):
        image, encoded = load(index, lambda: record[0] if record else source.record(index))
        return {"image": process(image, _seed(0, index)), **encoded}

    dataset = evaluation_pass.indices(source.num_examples, batch_size, share)
    if source.stream and not skipped:
        runs = evaluation_pass.runs(source.num_examples, batch_size, share)
        dataset = tf.data.Dataset.zip(dataset, source.stream(runs))
    spec = _map(dataset, prepare).element_spec
    _check_static(spec["image"].shape, preprocess)
    blank = tf.nest.map_structure(lambda leaf: tf.zeros(leaf.shape, leaf.dtype), spec)

    def readable(index):
        return unreadable_examples.load_or_blank(prepare, index, blank, source, skipped)[1]

    def masked(batch):
        # Padding and what cannot be read have no label either.
        labeled = tf.reduce_any(batch["label"] > 0, axis=-1)
        return {**batch, "mask": tf.cast(labeled, tf.float32)}

    dataset = _map(dataset, readable if skipped else prepare)
    dataset = dataset.concatenate(tf.data.Dataset.from_tensors(blank).repeat(len(share)))
    batches = -(-source.num_examples // batch_size)
    dataset = _batch(dataset, len(share)).take(batches)
    return _finish(_map(dataset, masked))


def batches_at_once(cores: int) -> int:
    """Returns how many batches a host of so many cores fills at the same time."""
    return max(1, cores // _CORES_PER_BATCH)


def _batch(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
    at_once = batches_at_once(os.cpu_count() or 1)
    return dataset.batch(
        size, drop_remainder=True, num_parallel_calls=at_once if at_once > 1 else None
    )


def _share(batch_size: int, workers: int, worker: int) -> range:
    if batch_size < 1 or batch_size % workers or not 0 <= worker < workers:
        raise ValueError(
            "Expected batch_size to be a multiple of num_input_pipelines and input_pipeline_id "
            f"below it. Received: batch_size={batch_size}, num_input_pipelines={workers}, "
            f"input_pipeline_id={worker}."
        )
    size = batch_size // workers
    return range(worker * size, (worker + 1) * size)


def _map(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    return dataset.map(as_it_stands(function), num_parallel_calls=tf.data.AUTOTUNE)


def _seed(seed: int, number) -> tf.Tensor:
    return tf.stack([tf.constant(seed, tf.int64), tf.cast(number, tf.int64)])


def _loader(source: random_access.Source, process: Preprocess, num_classes: int):
    """Returns a function from an index, and one that reads it, to its image and encoded labels."""
    encoders = [op.apply for op in process.label_operations]
    encoders = encoders or [one_hot(num_classes)]

    def encode(label):
        for encoder in encoders:
            label = encoder(label)
        return label

    def load(index, read):
        example = source.parse(read(), index)
        kept = {key: value for key, value in example.items() if key not in ("image", "id")}
        return example["image"], {key: encode(value) for key, value in kept.items()}

    return load


def _cached(load, source: random_access.Source, process: Preprocess):
    """Returns the same function, but of decoded images that are loaded once."""
    decoded_images.check_fits(source, process.decoded)

    def decoded(index, read):
        image, encoded = load(index, read)
        return process.decoded(image), encoded["label"]

    one = tf.data.Dataset.range(1)
    spec = _map(one, lambda index: decoded(index, lambda: source.record(index))).element_spec
    images = decoded_images.DecodedImages(spec)

    def from_memory(index, read):
        image, label = images.get(index, lambda: decoded(index, read))
        return image, {"label": label}

    return from_memory


def _blend(batch, operations, seed, size: int, partner_first: bool):
    """Applies batch operations to a share of `size` images and at most one partner image."""
    partner = {key: tf.roll(value, 1, axis=0) for key, value in batch.items()}
    # A partner of another worker sorts before the share, or after it in the first worker's.
    kept = slice(-size, None) if partner_first else slice(0, size)
    batch = {key: value[kept] for key, value in batch.items()}
    partner = {key: value[kept] for key, value in partner.items()}
    for op in operations:
        batch = op.apply(batch, partner, seed)
    return batch


def _check_static(shape: tf.TensorShape, text: str) -> None:
    if not shape.is_fully_defined():
        raise ValueError(
            f"Expected the preprocessing to end with images of one size. {text!r} leaves the "
            f"shape {tuple(shape)}: add a resize or a crop."
        )


def _finish(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    # A worker reads its own share already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
