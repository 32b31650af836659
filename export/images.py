"""Images to verify and to calibrate exports with."""

import logging
import os
import pathlib

import numpy as np

from keras_vit.training.data.opened_dataset import open_dataset, open_files, warn_of_trained
from keras_vit.training.data.preprocessing.preprocess import read_images
from keras_vit.training.data.skip_unreadable import SkipCounter
from keras_vit.training.data.tf_data_batches import plain_dataset
from keras_vit.training.errors import UsageError
from keras_vit.training.inference.interface import Interface
from keras_vit.training.io.image_listing import list_images, spread
from keras_vit.training.source_facts import runs_behind
from keras_vit.training.tasks import Task, task_of
from keras_vit.training.tasks.classification.evaluation import class_order

from .errors import ExportError, damage_refused

logger = logging.getLogger("keras_vit")


def load_images(
    data: str | os.PathLike,
    interface: Interface,
    *,
    split: str | None = None,
    data_dir: str | None = None,
    limit: int = 200,
    scored: str | os.PathLike = "",
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns (images, labels) of a data set.

    Args:
        data: a name as `training.data.open` takes it, "digits" or "folder:/data/birds"; a
            directory with image files in and below it, which have no labels; or a .npz file
            with the arrays `images`, (n, height, width, 3) in [0, 1], and, if there are, `labels`.
        interface: of the model: the size of images, the operations that make them of photos, of
            which the last is `value_range(-1,1)`, and the order of classes.
        split: text of the split, for names of data sets; None is "test", or of photos the only one.
        data_dir: folder of TensorFlow Datasets, for names of the registry.
        limit: how many; of a directory, from its first file to its last, evenly apart.
        scored: the source of a model that is scored on them: a warning tells if they trained it.

    Returns:
        images, (n, height, width, 3) float32 in [0, 1], and labels as `verify` takes them, or None
        where there are none, or they are not the model's classes, which a warning says.

    Raises:
        ValueError: if there are no images, or they cannot be used. What cannot be read of a data
            set is left out, and named in a warning.
    """
    preprocess, size = interface.preprocessing, interface.image_size
    path, labels = pathlib.Path(str(data)), None
    if path.suffix == ".npz" and path.exists():
        expected = "Expected a .npz file with the array `images`"
        with (
            damage_refused(f"{expected}. {path} cannot be read", "Write it with numpy.savez."),
            np.load(path, allow_pickle=False) as arrays,
        ):
            labels = arrays["labels"][:limit] if "labels" in arrays else None
            return np.asarray(arrays["images"][:limit], "float32"), labels
    if path.is_dir():
        files = spread(list_images([path]), limit)
        images, opened = read_images(files, preprocess), open_files([str(file) for file in files])
    else:
        whole = open_dataset(str(data), data_dir)
        names = [*whole.spec.sizes] if whole.photos else []
        opened = whole.split(split or (names[0] if len(names) == 1 else "test"))
        operations = opened.preprocess(preprocess).require_range("the preprocessing", opened)
        skipped = SkipCounter(named=True)
        task = task_of({}, interface.classifies)

        def read(task):
            dataset = plain_dataset(opened, operations, task=task, skip_counter=skipped)
            return [*dataset.take(limit)]

        try:
            order = class_order(interface.class_names, opened.dataset.class_names, str(data))
            examples = read(task)
        except UsageError as error:
            logger.warning("No accuracy is computed. %s", error)
            order, examples = None, read(Task())  # of images alone
        if not examples:
            raise ExportError(f"Expected images in {data}. Received: none that can be read.")
        images = np.stack([each["image"] for each in examples])
        if "label" in examples[0]:
            labels = np.stack([each["label"] for each in examples])
            if order and interface.classifies == "pixel":
                labels = np.where(labels < 0, labels, np.array(order)[labels])
            elif order:
                labels = labels[:, np.argsort(order)]
    for run, config in runs_behind(scored):
        warn_of_trained(opened, run, config)
    if images.shape[1:] != (*size, 3):
        raise ExportError(
            f"Expected a preprocessing to images of shape {(*size, 3)}. Received: {preprocess!r}, "
            f"which gives {tuple(images.shape[1:])}"
        )
    return ((np.asarray(images) + 1) / 2).clip(0, 1).astype("float32"), labels
