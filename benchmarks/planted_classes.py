"""A data set of ImageNet's size that costs a few gigabytes: small JPEGs whose class is planted."""

import functools
import io
import os
import pathlib

import numpy as np

SIDE = 32
NAME = "planted_classes"
VERSION = "1.0.0"
_CELLS = 4
_QUALITY = 90
# Different pictures of a class: its images take turns, so that writing a million costs minutes.
_PICTURES = 16


def planted_image(label: int, number: int) -> np.ndarray:
    """Returns uint8 (32, 32, 3): the colors of the class, 4x4 cells of them, and noise.

    Args:
        label: of the class; fixes the colors.
        number: of the picture; fixes the noise.
    """
    colors = np.random.default_rng([1, label]).integers(40, 216, (_CELLS, _CELLS, 3))
    pattern = colors.repeat(SIDE // _CELLS, 0).repeat(SIDE // _CELLS, 1)
    noise = np.random.default_rng([2, label, number]).integers(-24, 25, (SIDE, SIDE, 3))
    return np.clip(pattern + noise, 0, 255).astype(np.uint8)


def write(
    data_dir: str | os.PathLike, train: int, validation: int, classes: int, shards: int
) -> None:
    """Writes the set in TFDS's format, in a random order as TFDS does, unless it is there.

    Args:
        data_dir: folder of prepared data sets.
        train: number of training images.
        validation: number of validation images, of pictures of their own.
        classes: number of classes, in turns.
        shards: files of each split.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    folder = pathlib.Path(data_dir, NAME, VERSION)
    if (folder / "dataset_info.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    image = tfds.features.Image(shape=(SIDE, SIDE, 3), encoding_format="jpeg")
    label = tfds.features.ClassLabel(num_classes=classes)
    features = tfds.features.FeaturesDict({"image": image, "label": label})

    @functools.cache
    def record(label, number):
        picture = io.BytesIO(_encoded(planted_image(label, number)))
        return features.serialize_example(
            features.encode_example({"image": picture, "label": label})
        )

    splits = []
    for split, count, first in (("train", train, 0), ("validation", validation, _PICTURES)):
        template = tfds.core.ShardedFileTemplate(
            data_dir=folder, dataset_name=NAME, split=split, filetype_suffix="tfrecord"
        )
        parts = np.array_split(np.random.default_rng(first).permutation(count), shards)
        files = [
            template.sharded_filepath(shard_index=number, num_shards=shards)
            for number in range(shards)
        ]
        for file, part in zip(files, parts, strict=True):
            with tf.io.TFRecordWriter(os.fspath(file)) as writer:
                for number in part.tolist():
                    picture = first + number // classes % _PICTURES
                    writer.write(record(number % classes, picture))
        splits.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[len(part) for part in parts],
                num_bytes=sum(map(os.path.getsize, files)),
                filename_template=template,
            )
        )
    tfds.folder_dataset.write_metadata(data_dir=folder, features=features, split_infos=splits)


def _encoded(pixels: np.ndarray) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "jpeg", quality=_QUALITY)
    return stream.getvalue()
