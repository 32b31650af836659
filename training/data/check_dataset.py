"""Checks a copy of a data set: its sizes, its classes, and that its images can be decoded."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from training.data import dataset_lookup
from training.data.dataset_spec import DatasetSpec
from training.errors import first_line
from training.io.quiet_start import import_tensorflow
from training.io.track import track

MAX_DECODED = 100


class Findings(NamedTuple):
    """What a check found.

    Attributes:
        location: name, version and folder of the prepared copy; "" for a folder of images.
        spec: the facts of the data set, with the sizes found.
        classes: the labels among the images that were decoded.
        tried: number of images that were to be decoded.
        unreadable: what is wrong with each image that failed.
        problems: what is wrong altogether; empty if all is well.
    """

    location: str
    spec: DatasetSpec
    classes: set[int]
    tried: int
    unreadable: list[str]
    problems: list[str]


def check(name: str, data_dir: str | None = None, every_image: bool = False) -> Findings:
    """Checks sizes and classes of a copy and decodes images spread over its splits.

    Args:
        name: of a data set, see `training.data.dataset_lookup`.
        data_dir: folder of prepared data sets; empty or None is the default of TFDS.
        every_image: whether to decode all of them rather than `MAX_DECODED`.

    Raises:
        NotPreparedError: if there is no copy; the message says how to get it.
    """
    spec, location = dataset_lookup.get(name, data_dir), ""
    if not spec.folder:
        found = dataset_lookup.locate(spec, data_dir)
        location = f"{found.name} {found.version} in {found.directory}"
        spec = spec.with_sizes(found.sizes)
    remedy = "Fill its folder or remove it." if spec.folder else "Prepare it again."
    empty = [
        f"{split} is empty: expected at least one image, found none. {remedy}"
        for split, size in spec.sizes.items()
        if not size
    ]
    sizes = {split: size for split, size in spec.sizes.items() if size}
    chosen = spread(sizes, len(sizes) * max(sizes.values()) if every_image else MAX_DECODED)
    classes, unreadable = _decode(name, data_dir, chosen)
    problems = empty + unreadable
    outside = sorted(label for label in classes if not 0 <= label < spec.num_classes)
    if outside:
        problems.append(f"labels outside 0..{spec.num_classes - 1}: {outside}")
    return Findings(location, spec, classes, len(chosen), unreadable, problems)


def spread(sizes: Mapping[str, int], total: int) -> list[tuple[str, int]]:
    """Returns at most `total` distinct (split, index), evenly over the splits and within each."""
    chosen = []
    for number, (split, size) in enumerate(sizes.items()):
        share = total // len(sizes) + (number < total % len(sizes))
        count = min(size, share)
        chosen += [(split, k * size // count) for k in range(count)]
    return chosen


def _decode(
    name: str, data_dir: str | None, chosen: Sequence[tuple[str, int]]
) -> tuple[set[int], list[str]]:
    # Here, so that data that is missing is reported without waiting for TensorFlow.
    tf = import_tensorflow()
    from training.data import random_access

    splits = dict.fromkeys(split for split, _ in chosen)
    opened = {split: random_access.open_source(name, split, data_dir) for split in splits}
    decode = {split: source.preprocess("decode") for split, source in opened.items()}
    classes, unreadable = set(), []
    for split, index in track(chosen, "decoding"):
        source = opened[split]
        try:
            example = source.read(tf.constant(index, tf.int64))
            decode[split](example["image"], (0, 0))
            classes.update(tf.reshape(example["label"], [-1]).numpy().tolist())
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
            unreadable.append(f"{split} {source.example_id(index)}: {first_line(error.message)}")
        except ValueError as error:  # of Pillow, which is not in a graph here
            unreadable.append(f"{split} {source.example_id(index)}: {error}")
    return classes, unreadable
