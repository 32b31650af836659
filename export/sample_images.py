"""Real images for calibration and verification."""

import os
import pathlib

import numpy as np

from export.errors import ExportError
from training.data import open_dataset
from training.evaluators.model_source import resizing
from training.io.image_files import list_images, read_images


def load_images(
    data: str | os.PathLike,
    size: tuple[int, int],
    *,
    split: str = "test",
    data_dir: str | None = None,
    preprocess: str | None = None,
    limit: int = 200,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns (images, labels) of a data set.

    Args:
        data: a name as `training.data.open` takes it, "digits" or "folder:/data/birds"; a
            directory with image files in and below it, which have no labels; or a .npz file
            with the arrays `images`, (n, height, width, 3) in [0, 1], and, if there are, `labels`.
        size: (height, width) in pixels.
        split: text of the split, for names of the registry.
        data_dir: folder of TensorFlow Datasets, for names of the registry.
        preprocess: operations as in `training.data.preprocessing`, whose last is
            `value_range(-1,1)`, for all but a .npz file; None resizes.
        limit: how many.

    Returns:
        images, (n, height, width, 3) float32 in [0, 1], and labels, (n,) ints or None.

    Raises:
        ValueError: if there are no images, or they cannot be used.
    """
    preprocess = preprocess or resizing(size)
    path = pathlib.Path(str(data))
    if path.suffix == ".npz" and path.exists():
        try:
            with np.load(path, allow_pickle=False) as arrays:
                labels = arrays["labels"][:limit] if "labels" in arrays else None
                return np.asarray(arrays["images"][:limit], "float32"), labels
        except Exception as error:
            # A damaged archive fails in many ways, depending on which byte it is.
            raise ExportError(
                f"Expected a .npz file with the array `images`. {path} cannot be read: "
                f"{type(error).__name__}: {error}."
            ) from error
    if path.is_dir():
        return _unit(read_images(list_images([path])[:limit], preprocess)), None
    return _from_registry(str(data), size, split, data_dir, preprocess, limit)


def _unit(images):
    return np.clip((images + 1) / 2, 0, 1).astype("float32")


def _from_registry(name, size, split, data_dir, preprocess, limit):
    opened = open_dataset(name, data_dir).split(split)
    operations = opened.preprocess(preprocess)
    batches = opened.evaluate(operations, batch_size=min(limit, 50))
    images, labels, count = [], [], 0
    for batch in batches:
        real = batch["mask"].numpy() > 0
        images.append(operations.on_device(batch["image"]).numpy()[real])
        labels.append(batch["label"].numpy()[real])
        count += real.sum()
        if count >= limit:
            break
    images = _unit(np.concatenate(images)[:limit])
    labels = np.concatenate(labels)[:limit]
    if images.shape[1:] != (*size, 3):
        raise ExportError(
            f"Expected a preprocessing to images of shape {(*size, 3)}. Received: {preprocess!r}, "
            f"which gives {images.shape[1:]}"
        )
    return images, labels.argmax(-1)
