"""Finds mistakes among one's own labels: photos whose label the other photos contradict.

A trained model knows the labels of its training photos by heart, wrong ones too. So the features of
the model are taken after every `PASSES` over them, `TIMES` in all, and a linear classifier on them,
the least squares of few-shot evaluation, predicts each tenth of the photos from the other nine.
"""

import contextlib
import functools
import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.errors import damage_named
from keras_vit.few_shot_head import LeastSquares

from ..data import Dataset
from ..data.sets.splits import Photo
from ..data.skip_unreadable import SkipCounter
from ..data.tf_data_batches import eval_dataset
from ..inference.image_function import KerasFunction
from ..io.atomic import atomic_file
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..tasks import COUNTED, TASKS, task_of
from ..tasks.base import Picture, Section, as_bytes

FILE = "labels.npz"  # in the run directory
# Photos that are compared, and those that a page shows.
MAX_PHOTOS, SHOWN = 2000, 12
FOLDS, L2 = 10, 16.0
# Passes over the training photos before labels are compared each time: the first are enough to
# learn, and the last too few to learn by heart.
PASSES, TIMES = 10, 6
# With a larger part of the photos in doubt, the features tell too little.
MANY = 0.2
_BATCH = 32
# Large JPEGs are decoded at a fraction of their size: features change little.
_REDUCED = 2.0


class LabelComparison:
    """Compares the labels of a run's photos with what the features of its model show.

    Each comparison adds to those before it, which are kept in the run directory: what features
    show at one time is half chance.
    """

    def __init__(self, config: Mapping[str, Any], dataset: Dataset, run: pathlib.Path):
        self.config, self.dataset, self.file = config, dataset, run / FILE

    @property
    def is_possible(self) -> bool:
        """Whether there are photos in classes."""
        classifies = task_of(self.config) is TASKS[0]
        return bool(self.dataset.photos) and classifies and self.dataset.num_classes > 1

    def times_due(self, images_seen: int) -> int:
        """Returns how often labels should have been compared after so many training images."""
        images = PASSES * self.dataset.split(self.config["train_split"]).num_examples
        return min(images_seen // images, TIMES)

    def kept(self, data: np.ndarray) -> dict[str, np.ndarray]:
        """Returns what earlier comparisons of the same `data`, `fingerprint.as_numbers`, left."""
        with contextlib.suppress(ValueError):  # damaged: written anew
            kept = kept_doubts(self.file.parent)
            if kept and np.array_equal(kept["data"], data):
                return kept
        return {}

    def add(self, source: KerasFunction, data: np.ndarray, step: int) -> None:
        """Compares by the run's model after `step` updates, and writes what `kept_doubts` reads.

        These are of doubted photos, the most doubted first, `doubt_photos`, paths; `doubt_labels`
        and `doubt_predictions`, classes; `doubt_shares`, how much further from 0 to 1 the
        prediction's score is than the label's; `doubt_trained`, whether they trained;
        `doubt_images`, (at most `SHOWN`, height, width, 3) uint8. And of all photos `scores`,
        (photos, classes), summed over `times` comparisons; `unreadable`, paths; and `step`.
        """
        kept = self.kept(data)
        if kept and kept["step"] >= step:
            return
        photos, trained, unreadable, images = self._photos
        labels = np.array([photo.label for photo in photos])
        parts = [images[i : i + _BATCH] for i in range(0, len(images), _BATCH)]
        known = [source.features(part.astype(np.float32) / 127.5 - 1) for part in parts]
        if len(labels) < FOLDS or not np.isfinite(known := np.concatenate(known)).all():
            return
        scores, times = _out_of_fold(known, labels, self.dataset.num_classes), 1
        if kept:
            scores, times = scores + kept["scores"], 1 + int(kept["times"])
        margin = (scores.max(axis=1) - scores[np.arange(len(labels)), labels]) / times
        order = np.argsort(-margin, kind="stable")[: np.count_nonzero(margin > 0)]
        with atomic_file(self.file) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(
                stream,
                doubt_photos=np.array([photos[each].path for each in order], str),
                doubt_labels=labels[order],
                doubt_predictions=scores.argmax(axis=1)[order],
                doubt_shares=(margin[order] / 2).clip(0, 1),
                doubt_trained=trained[order],
                doubt_images=images[order[:SHOWN]],
                scores=scores,
                times=np.array(times),
                unreadable=np.array([photo.path for photo in unreadable], str),
                step=np.array(step),
                data=data,
            )

    @functools.cached_property
    def _photos(self):
        """Of the first `MAX_PHOTOS`: those read, which trained, those unreadable, and pixels."""
        texts = [text for text in (self.config["train_split"], self.config["eval_split"]) if text]
        splits = [self.dataset.split(text) for text in texts]
        total = sum(split.num_examples for split in splits)
        photos: list[Photo] = []
        trained: list[bool] = []
        unreadable: list[Photo] = []
        pixels: list[np.ndarray] = []
        for number, split in enumerate(splits):
            preprocess = split.preprocess(self.config["eval_preprocess"], _REDUCED)
            count = min(split.num_examples, MAX_PHOTOS * split.num_examples // total + 1)
            batches = eval_dataset(
                split, preprocess, batch_size=_BATCH, skip_counter=SkipCounter()
            ).take(-(-count // _BATCH))
            read = []
            for batch in track(batches, f"comparing labels of {split.text}", -(-count // _BATCH)):
                read.append(np.asarray(batch[COUNTED]) > 0)
                images = np.asarray(batch["image"])[read[-1]]
                pixels.append(as_bytes(images))
            for photo, is_read in zip(split.photos, np.concatenate(read), strict=False):
                (photos if is_read else unreadable).append(photo)
                trained += [number == 0] if is_read else []
        return photos, np.array(trained), unreadable, np.concatenate(pixels)


def _out_of_fold(features, labels, num_classes):
    """Returns scores in about [-1, 1], (photos, classes), each by a classifier without its fold."""
    folds, scores = np.arange(len(labels)) % FOLDS, np.zeros((len(labels), num_classes))
    for fold in range(min(FOLDS, len(labels))):
        others = folds != fold
        fitted = LeastSquares(features[others], labels[others], num_classes)
        scores[~others] = fitted.scores(features[~others], L2)
    return scores


def kept_doubts(run: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays that training left in a run directory, {} where it left none."""
    if not (run / FILE).is_file():
        return {}
    advice = "Remove the file: the next page is drawn without it."
    with damage_named(f"{run / FILE} is damaged", advice), np.load(run / FILE) as kept:
        return dict(kept)


def doubt_table(arrays: Mapping[str, np.ndarray], class_names: Sequence[str]) -> Table:
    """Returns the doubted photos as a table, with the names of their classes."""
    columns = ("labels", "predictions", "shares", "trained")
    rows = [
        (photo, class_names[label], class_names[found], f"{share:.2f}", "yes" if trained else "no")
        for photo, label, found, share, trained in zip(
            arrays["doubt_photos"], *(arrays[f"doubt_{each}"] for each in columns), strict=True
        )
    ]
    return Table(("file", "folder", "prediction", "doubt", "trained on"), rows)


def doubt_section(arrays: Mapping[str, np.ndarray], class_names: Sequence[str]) -> Section:
    """Returns the part of a page with the photos that may lie in a wrong folder."""
    table, pictures = doubt_table(arrays, class_names), []
    for image, row in zip(arrays["doubt_images"], table.rows, strict=False):
        photo, folder, found, share, trained = row
        caption = f"{photo}: in {folder}, looks like {found} ({share})"
        pictures.append(Picture(image, caption, photo, is_trained=trained == "yes"))
    unreadable, photos = [*arrays["unreadable"]], len(arrays["scores"])
    note = (
        f"{len(table.rows)} of {photos:,} photos look like another class than their folder's, by "
        f"features of the first {int(arrays['step']):,} steps and without the photo's own label; "
        "the most doubted first. The file may be wrong, or the photo an odd one. All of them: "
        "<code>keras-vit predict RUN --mistakes --csv</code>, RUN being the folder of this page."
    )
    if len(table.rows) > MANY * photos:
        note += " They are too many to be mistakes: the model tells these classes apart too badly."
    if unreadable:
        named = html.escape(", ".join(unreadable[:5])) + (", …" if unreadable[5:] else "")
        note += f" {len(unreadable)} could not be read: {named}."
    return Section("labels", "Labels to check", note, pictures=pictures)
