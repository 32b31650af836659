"""Checks a copy of a data set: its sizes, its classes, and that its images can be decoded."""

from collections.abc import Mapping
from typing import NamedTuple

from keras_vit.training.data.opened_dataset import Dataset
from keras_vit.training.errors import first_line
from keras_vit.training.io.progress_bar import track
from keras_vit.training.io.quiet_start import import_tensorflow

MAX_DECODED = 100


class Findings(NamedTuple):
    """The labels of the decoded images, the number tried, and a sentence for each problem."""

    classes: set[int]
    tried: int
    unreadable: list[str]
    # With those of `unreadable`; empty if all is well.
    problems: list[str]


def check(dataset: Dataset, every_image: bool = False) -> Findings:
    """Checks sizes and classes of a copy and decodes every image, or some over all its splits."""
    # Imported here, so that missing data is reported without waiting for TensorFlow.
    tf = import_tensorflow()
    remedy = "Fill its folder or remove it." if dataset.photos else "Prepare it again."
    problems = [
        f"{split} is empty: expected at least one image, found none. {remedy}"
        for split, size in dataset.spec.sizes.items()
        if not size
    ]
    sizes = {split: size for split, size in dataset.spec.sizes.items() if size}
    chosen = spread(sizes, len(sizes) * max(sizes.values()) if every_image else MAX_DECODED)
    splits = {name: dataset.split(name) for name in sizes}
    decode = {name: split.preprocess("decode") for name, split in splits.items()}
    classes, unreadable = set(), []
    for name, index in track(chosen, "decoding"):
        try:
            example = splits[name].read(tf.constant(index, tf.int64))
            decode[name](example["image"], (0, 0))
            classes.update(tf.reshape(example["label"], [-1]).numpy().tolist())
        # Pillow raises a ValueError, as it is not in a graph here.
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError, ValueError) as error:
            reason = first_line(getattr(error, "message", error))
            unreadable.append(f"{name} {splits[name].example_id(index)}: {reason}")
    problems += unreadable
    outside = sorted(label for label in classes if not 0 <= label < dataset.num_classes)
    if outside:
        problems.append(f"labels outside 0..{dataset.num_classes - 1}: {outside}")
    return Findings(classes, len(chosen), unreadable, problems)


def spread(sizes: Mapping[str, int], total: int) -> list[tuple[str, int]]:
    """Returns at most `total` distinct (split, index), evenly over the splits and within each."""
    counts = {split: min(size, total // len(sizes) or 1) for split, size in sizes.items()}
    return [(split, k * sizes[split] // n) for split, n in counts.items() for k in range(n)]
