"""`load_dataset`: the examples of a split for any purpose, one by one or in batches."""

import os

import tensorflow as tf

from training.data import random_access, unreadable_examples
from training.data.graph import as_it_stands
from training.data.preprocessing import pixels_and_labels
from training.data.skip_counter import SkipCounter


def load_dataset(
    name: str,
    split: str,
    *,
    data_dir: str | os.PathLike | None = None,
    preprocess: str = "decode",
    one_hot: bool = False,
    batch_size: int | None = None,
    with_ids: bool = False,
    on_error: str = "raise",
    skip_counter: SkipCounter | None = None,
) -> tf.data.Dataset:
    """Returns one pass over a split, in its stored order.

    Examples:
        >>> training.load_dataset("cifar10", "train[:98%]", preprocess="decode|resize(224)")
        >>> training.load_dataset("folder:/data/birds", "train[90%:]")
        >>> training.load_dataset("tfds:my_dataset:1.0.0", "full", data_dir="/data/tfds")

    Args:
        name: a data set of the table (`python -m training data list`), `vtab/task`,
            `tfds:name/config:version`, or `folder:/path` with a sub-folder for each class.
        split: such as "train", "train[:98%]" or "train[:800]+validation[:200]".
        data_dir: folder of prepared data sets; empty or None is the default of TFDS.
        preprocess: text of operations, see `training.data.preprocessing.operation`; by default,
            uint8 RGB images of their own sizes.
        one_hot: labels as float32 (num_classes,) rather than int64 classes. Data sets whose
            images have several labels always give the former.
        batch_size: size of batches, the last of which may be smaller; None for no batches.
        with_ids: also yield "id", the example's identity in TFDS's notation or its path.
        on_error: "raise", or "skip" to leave unreadable images out.
        skip_counter: counts what is left out.

    Returns:
        A `tf.data.Dataset` of `{"image", "label"}`.

    Raises:
        NotPreparedError: at once if the data set is not on disk; the message says how to get
            it. Nothing is ever downloaded here.
        ValueError: for an unknown name, split, operation or value of `on_error`.
    """
    skipped = unreadable_examples.counter_for(on_error, skip_counter)
    source = random_access.open_source(name, split, data_dir)
    process = source.preprocess(preprocess)
    if process.batch_operations:
        raise ValueError(f"Expected no mixup outside training. Received: {preprocess!r}.")

    def load(index):
        example = source.read(index)
        label = example["label"]
        for op in process.label_operations:
            label = op.apply(label)
        if not process.label_operations and (one_hot or label.shape.rank == 1):
            label = pixels_and_labels.one_hot(source.spec.num_classes)(label)
        out = {"image": process(example["image"], tf.stack([0, index])), "label": label}
        return {**out, "id": example["id"]} if with_ids else out

    dataset = tf.data.Dataset.range(source.num_examples)
    if skipped:
        blank = tf.nest.map_structure(
            lambda spec: tf.zeros([size or 0 for size in spec.shape], spec.dtype),
            dataset.map(as_it_stands(load)).element_spec,
        )
        dataset = dataset.map(
            as_it_stands(
                lambda index: unreadable_examples.load_or_blank(load, index, blank, source, skipped)
            ),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        dataset = dataset.filter(lambda mask, _: mask > 0).map(lambda _, example: example)
    else:
        dataset = dataset.map(as_it_stands(load), num_parallel_calls=tf.data.AUTOTUNE)
    if batch_size:
        dataset = dataset.batch(batch_size)
    return dataset.prefetch(tf.data.AUTOTUNE)


def example_ids(name: str, split: str, *, data_dir: str | os.PathLike | None = None) -> list[str]:
    """Returns the ids of the examples of a split in order, without reading them.

    Which examples `train[:800]` holds depends on how a data set was prepared, so results on
    VTAB-1k are comparable between machines only if these agree.
    """
    source = random_access.open_source(name, split, data_dir)
    return [source.example_id(index) for index in range(source.num_examples)]
