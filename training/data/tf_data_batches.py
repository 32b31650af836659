"""Input pipelines that are pure functions of (seed, step).

The order of the examples is a function of (seed, epoch), see `training.data.order`, and any
example is read alone, see `training.data.records`. Position g = step · batch_size + i of the run
therefore determines the example, its crop and its augmentation, whatever the number of hosts or
workers, and a run starts at any step without reading what it skips.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import UsageError
from ..tasks import COUNTED, TASKS, Task
from ..tasks.classification import encode_classes
from .decoded_image_cache import keep_decoded
from .opened_dataset import Split, open
from .order import example_order
from .preprocessing.parse_operations import Operation, parse
from .preprocessing.preprocess import Preprocess
from .skip_unreadable import SkipCounter, counter_for, load_or_blank, load_or_next
from .traced_functions import as_it_stands, require

_FOREVER = 2**62
# So many cores decode about as many images as one thread copies into batches.
_CORES_PER_BATCH = 16
# Stands for a record that is not read ahead: no record is empty.
_UNREAD = ""
# Evaluation reads at most so many neighbors at a time.
_RUN = 256


def batch_operations(preprocess: Preprocess, mixup_p: float) -> list[Operation]:
    """Returns the operation on batches of a text, or mixup; raises UsageError for two of them."""
    found = [*preprocess.batch_operations, *(parse(f"mixup({mixup_p})") if mixup_p else [])]
    if len(found) > 1:
        raise UsageError(
            "config.mixup_p: expected one operation on batches, such as mixup, here or in "
            f"config.train_preprocess. Received: {mixup_p} beside {preprocess.text!r}."
        )
    return found


def train_dataset(
    split: Split,
    preprocess: Preprocess,
    num_input_pipelines: int = 1,
    input_pipeline_id: int = 0,
    *,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    mixup_p: float = 0.0,
    skip_counter: SkipCounter | None = None,
    cache: str = "off",
    task: Task = TASKS[0],
) -> tf.data.Dataset:
    """Returns the infinite training data of this worker.

    Element k is this worker's share of the global batch of step `start_step + k`:
    `{"image": float32 (batch_size // num_input_pipelines, height, width, channels)}` and what else
    the task encodes: of classification "label", float32 (…, num_classes). The shares of all
    workers, in the order of their ids, are the global batch. Every epoch visits every example
    once, in an order of its own.

    Args:
        split: to train on.
        preprocess: of `split.preprocess`.
        num_input_pipelines: number of workers that share a batch; divides `batch_size`.
        input_pipeline_id: this worker, 0-based.
        batch_size: global batch size.
        seed: any integer; the same seed gives the same data.
        start_step: step to start at.
        mixup_p: parameter of mixup's Beta distribution, 0 for none.
        skip_counter: lets the next example stand in for an unreadable one, and counts that; None
            raises its error.
        cache: "on", "auto" or "off": whether decoded images stay in memory, see
            `training.data.decoded_image_cache`.
        task: encodes the examples.

    Raises:
        ValueError: for arguments that do not fit together, or damaged files.
        UsageError: if decoded images would not find room in memory.
    """
    share = _share(batch_size, num_input_pipelines, input_pipeline_id)
    on_batches = batch_operations(preprocess, mixup_p)
    reader, is_kept = split.reader, lambda _: tf.constant(False)
    keeps = cache != "off"
    keeps_encoded = keeps and task.encodes_labels_alone and preprocess.on_images_alone

    def encode(example):
        return task.encode(example, split.dataset.num_classes)

    def load(index, read):
        example = reader.parse(read(), index)
        return encode(example) if keeps_encoded else example

    if keeps:
        load, is_kept = keep_decoded(load, split, preprocess.decoded, cache)

    def example(position, index, record=_UNREAD):
        def prepare(one):
            def read():
                if not reader.remote:
                    return reader.record(one)
                is_read = (one == index) & (record != _UNREAD)
                return tf.cond(is_read, lambda: record, lambda: reader.record(one))

            found = preprocess.example(load(one, read), _seed(seed, position))
            return found if keeps_encoded else encode(found)

        if skip_counter:
            return load_or_next(prepare, index, split, skip_counter)
        return prepare(index)

    # With mixup, each image is blended with the one before it in the global batch. That of a
    # share's first image belongs to another worker, so this worker reads it as well.
    slots = {*share, (share.start - 1) % batch_size} if on_batches else {*share}
    dataset = example_order(split.num_examples, seed, start_step * batch_size, batch_size, slots)
    if reader.remote:
        dataset = _read_ahead(dataset, reader.record, is_kept)
    dataset = _batch(_map(dataset, example), len(slots), preprocess)
    dataset = _map(dataset, lambda batch: _known(split, batch))
    if on_batches:

        def blended(step, batch):
            return _blend(batch, on_batches, _seed(~seed, step), share)

        steps = tf.data.Dataset.range(start_step, _FOREVER)
        dataset = _map(tf.data.Dataset.zip(steps, dataset), blended)
    return _finish(dataset)


def eval_dataset(
    split: Split,
    preprocess: Preprocess,
    num_input_pipelines: int = 1,
    input_pipeline_id: int = 0,
    *,
    batch_size: int,
    skip_counter: SkipCounter | None = None,
    task: Task = TASKS[0],
) -> tf.data.Dataset:
    """Returns one pass over a split in its stored order, in batches of one static shape.

    Elements are those of `train_dataset` and `COUNTED`, float32 (…,). The last batch is padded with
    zeros; `COUNTED` is 0 there, on images that the task does not count, as those without any label
    (ReaL) and, with `skip_counter`, on unreadable ones, so its sum is the number of images to
    divide by. Every worker yields the same number of batches.

    Random operations draw from fixed seeds. Args and Raises: as `train_dataset`.
    """
    share = _share(batch_size, num_input_pipelines, input_pipeline_id)
    refuse_mixup(preprocess, "in evaluation")
    reader = split.reader

    def prepare(index, *record):
        found = reader.parse(record[0] if record else reader.record(index), index)
        prepared = preprocess.example(found, _seed(0, index))
        found = task.encode(prepared, split.dataset.num_classes)
        return {**found, COUNTED: tf.cast(task.counts(found), tf.float32)}

    indices = np.arange(split.num_examples)
    places = indices % batch_size
    indices = indices[(places >= share.start) & (places < share.stop)]
    dataset = tf.data.Dataset.from_tensor_slices(indices)
    if reader.stream and not skip_counter:
        dataset = tf.data.Dataset.zip(dataset, reader.stream(indices))
    dataset, blank = _walk(split, dataset, prepare, skip_counter)
    dataset = dataset.concatenate(tf.data.Dataset.from_tensors(blank).repeat(len(share)))
    dataset = dataset.map(as_it_stands(lambda _, example: example))
    batches = -(-split.num_examples // batch_size)
    dataset = _batch(dataset, len(share), preprocess).take(batches)
    return _finish(_map(dataset, lambda batch: _known(split, batch)))


def plain_dataset(
    split: Split,
    preprocess: Preprocess,
    *,
    one_hot: bool = False,
    batch_size: int | None = None,
    with_ids: bool = False,
    skip_counter: SkipCounter | None = None,
    task: Task | None = None,
) -> tf.data.Dataset:
    """Returns one pass over a split in its stored order, `{"image", "label"}`, without padding.

    Args:
        split, preprocess: as in `train_dataset`.
        one_hot: labels as float32 (num_classes,) rather than int64 classes. Data sets whose
            images have several labels always give the former.
        batch_size: size of batches, the last of which may be smaller; None for no batches.
        with_ids: also yield "id", `Split.example_id` of the example.
        skip_counter: leaves unreadable images out and counts them; None raises their errors.
        task: encodes the examples, instead of `one_hot`.

    Raises:
        ValueError: for operations on batches.
        UsageError: for labels that are not of the task.
        tf.errors.InvalidArgumentError: while it is read, for an image that cannot be decoded or a
            label outside of the classes.
    """
    refuse_mixup(preprocess, "outside training")

    def load(index):
        example = preprocess.example(split.read(index), _seed(0, index))
        found = {key: example[key] for key in ("image", "label")}
        label = found["label"]
        if task:
            found = task.encode(found, split.dataset.num_classes)
        elif label.dtype.is_integer and (one_hot or label.shape.rank == 1):
            found["label"] = encode_classes(label, split.dataset.num_classes)
        if with_ids:
            of = tf.numpy_function(lambda one: split.example_id(int(one)), [index], tf.string)
            found["id"] = tf.ensure_shape(of, [])
        return found

    indices = tf.data.Dataset.range(split.num_examples)
    dataset, _ = _walk(split, indices, load, skip_counter)
    if skip_counter:
        dataset = dataset.filter(as_it_stands(lambda is_read, _: is_read))
    dataset = dataset.map(as_it_stands(lambda _, example: _known(split, example)))
    if batch_size:
        dataset = dataset.batch(batch_size)
    return dataset.prefetch(tf.data.AUTOTUNE)


def load_dataset(
    name: str,
    split: str,
    *,
    data_dir: str | os.PathLike | None = None,
    preprocess: str = "decode",
    on_error: str = "raise",
    skip_counter: SkipCounter | None = None,
    **settings: Any,
) -> tf.data.Dataset:
    """Returns one pass over a split of a data set, in its stored order, as `{"image", "label"}`.

    Examples:
        >>> training.load_dataset("cifar10", "train[:98%]", preprocess="decode|resize(224)")
        >>> training.load_dataset("folder:/data/birds", "train[90%:]")
        >>> training.load_dataset("tfds:my_dataset:1.0.0", "full", data_dir="/data/tfds")

    Args:
        name: as in `open`.
        split: as in `open`.
        data_dir: as in `open`.
        preprocess: text of operations, see `training.data.preprocessing`. The default gives uint8
            RGB images of their own sizes.
        on_error: "raise", or "skip" to leave unreadable images out.
        skip_counter: counts what is left out.
        **settings: `one_hot`, `batch_size` and `with_ids` of `plain_dataset`.

    Raises:
        NotPreparedError, ValueError: as `open`, at once; nothing is ever downloaded here.
        ValueError: for an unknown operation or value of `on_error`.
    """
    opened = open(name, split, data_dir)
    settings["skip_counter"] = counter_for(on_error, skip_counter)
    return plain_dataset(opened, opened.preprocess(preprocess), **settings)


def _share(batch_size: int, workers: int, worker: int) -> range:
    """Returns the places of a worker in the global batch."""
    if batch_size < 1 or batch_size % workers or not 0 <= worker < workers:
        raise ValueError(
            "Expected batch_size to be a multiple of num_input_pipelines and input_pipeline_id "
            f"below it. Received: batch_size={batch_size}, num_input_pipelines={workers}, "
            f"input_pipeline_id={worker}."
        )
    size = batch_size // workers
    return range(worker * size, (worker + 1) * size)


def refuse_mixup(preprocess: Preprocess, where: str) -> None:
    """Raises `ValueError` for operations on batches."""
    if preprocess.batch_operations:
        raise ValueError(f"Expected no mixup {where}. Received: {preprocess.text!r}.")


def _known(split, example):
    """Returns `example`; refuses labels outside of the classes, of which none is ever skipped."""
    dataset = split.dataset
    if dataset.kind in ("labels", "numbers"):
        return example
    for key in example.keys() - {"image", "id", COUNTED}:
        label, expected = example[key], f"Expected labels below {dataset.num_classes}"
        if label.dtype.is_integer:
            # TFDS writes -1 where it knows no label.
            known, received = tf.reduce_all(label < dataset.num_classes), label
        else:
            known, received = tf.reduce_all(label < np.inf), "another"  # NaN is below nothing
            expected += f": keras-vit data check {dataset.name} --all names others"
        require(known, f"{expected}. Received:", received)
    return example


def _read_ahead(order, record, is_kept):
    """Adds its record to (position, index): `_UNREAD` if kept in memory, or damaged."""

    def add(position, index):
        found = tf.cond(
            is_kept(index),
            lambda: tf.constant(_UNREAD),
            lambda: load_or_blank(record, index, _UNREAD)[1],
        )
        return position, index, found

    requests = max(256, 8 * (os.cpu_count() or 1))
    return order.map(as_it_stands(add), num_parallel_calls=requests, use_unbounded_threadpool=True)


def _walk(split, indices, load, skipped):
    """Returns (whether it could be read, `load` of it) of elements of `indices`, and a blank one.

    A blank has zeros of an element's shapes; a dimension of any size has none.
    """
    dataset = _map(indices, lambda *each: (True, load(*each)))
    blank = tf.nest.map_structure(
        lambda spec: tf.zeros([size or 0 for size in spec.shape], spec.dtype), dataset.element_spec
    )
    if skipped:
        dataset = _map(indices, lambda index: load_or_blank(load, index, blank[1], split, skipped))
    return dataset, blank


def _blend(batch, operations, seed, share: range):
    """Applies batch operations to a share of the images and at most one partner image."""
    partner = {key: tf.roll(value, 1, axis=0) for key, value in batch.items()}
    # A partner of another worker sorts before the share, or after it in the first worker's.
    kept = slice(-len(share), None) if share.start else slice(len(share))
    batch, partner = (
        {key: value[kept] for key, value in part.items()} for part in (batch, partner)
    )
    for op in operations:
        batch = op.apply(batch, partner, seed)
    return batch


def _seed(seed: int, number) -> tf.Tensor:
    return tf.stack([tf.constant(seed, tf.int64), tf.cast(number, tf.int64)])


def _map(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    return dataset.map(as_it_stands(function), num_parallel_calls=tf.data.AUTOTUNE)


def _batch(dataset: tf.data.Dataset, size: int, preprocess: Preprocess) -> tf.data.Dataset:
    shape = dataset.element_spec["image"].shape
    if not shape.is_fully_defined():
        raise ValueError(
            "Expected the preprocessing to end with images of one size. "
            f"{preprocess.text!r} leaves the shape {tuple(shape)}: add a resize or a crop."
        )
    at_once = (os.cpu_count() or 1) // _CORES_PER_BATCH
    parallel = at_once if at_once > 1 else None
    return dataset.batch(size, drop_remainder=True, num_parallel_calls=parallel)


def _finish(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    # A worker reads its own share already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
