"""Finds mistakes among one's own labels: photos whose label the other photos contradict.

A trained model knows the labels of its training photos by heart, wrong ones too. So the features of
the model after `PASSES` over them are taken, and a linear classifier on them, the least
squares of few-shot evaluation, predicts each tenth of the photos from the other nine.
"""

import contextlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.errors import damage_named

from ..data import Dataset
from ..data.skip_unreadable import SkipCounter
from ..data.tf_data_batches import eval_dataset
from ..evaluators.few_shot import LeastSquares
from ..inference.keras_function import KerasFunction
from ..io.atomic import atomic_file
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..tasks import COUNTED, TASKS, task_of

FILE = "labels.npz"  # in the run directory
# Photos that are compared, and those that a page shows.
MAX_PHOTOS, SHOWN = 2000, 12
FOLDS, L2 = 10, 16.0
# Over the training photos, before labels are compared: enough to learn, too few to learn by heart.
PASSES = 10
_BATCH = 32
# Large JPEGs are decoded at a fraction of their size: features change little.
_REDUCED = 2.0


def doubtful_labels(
    source: KerasFunction, config: Mapping[str, Any], dataset: Dataset, step: int
) -> dict[str, np.ndarray]:
    """Returns arrays about the photos of a run whose labels are doubted, the most doubted first.

    Args:
        source: the run's model after `step` updates.
        config: of the run.
        dataset: its photos, of which the first `MAX_PHOTOS` of both splits are read.

    Returns:
        Of doubted photos `doubt_photos`, paths; `doubt_labels` and `doubt_predictions`, classes;
        `doubt_shares`, the scores of the predictions as probabilities; `doubt_trained`, whether
        they trained; `doubt_images`, (at most `SHOWN`, height, width, 3) uint8. And `unreadable`,
        paths, `compared`, the number of photos, and `step`. {} without ten photos in classes.
    """
    if not dataset.photos or task_of(config) is not TASKS[0] or dataset.num_classes < 2:
        return {}
    texts = [text for text in (config["train_split"], config["eval_split"]) if text]
    splits = [dataset.split(text) for text in texts]
    total = sum(split.num_examples for split in splits)
    process = [each.preprocess(config["eval_preprocess"], _REDUCED) for each in splits]
    features: list[np.ndarray] = []
    places: list[tuple[int, int]] = []
    unreadable: list[tuple[int, int]] = []
    for number, (split, preprocess) in enumerate(zip(splits, process, strict=True)):
        count = min(split.num_examples, MAX_PHOTOS * split.num_examples // total + 1)
        batches = eval_dataset(
            split, preprocess, batch_size=_BATCH, skip_counter=SkipCounter()
        ).take(-(-count // _BATCH))
        read = []
        for batch in track(batches, f"comparing the labels of {split.text}", -(-count // _BATCH)):
            read.append(np.asarray(batch[COUNTED]) > 0)
            features.append(source.features(np.asarray(batch["image"]))[read[-1]])
        for place, is_read in enumerate(np.concatenate(read)[: split.num_examples]):
            (places if is_read else unreadable).append((number, place))
    photos = [splits[number].photos[place] for number, place in places]
    labels = np.array([photo.label for photo in photos])
    known = np.concatenate(features)
    if len(labels) < FOLDS or not np.isfinite(known).all():
        return {}
    scores = _out_of_fold(known, labels, dataset.num_classes)
    found = scores.argmax(axis=1)
    margin = scores.max(axis=1) - scores[np.arange(len(labels)), labels]
    order = np.argsort(-margin, kind="stable")[: np.count_nonzero(margin > 0)]
    shown = []
    for number, place in (places[each] for each in order[:SHOWN]):
        image = splits[number].read(tf.constant(place, tf.int64))["image"]
        pixels = np.asarray(process[number](image, tf.constant([0, 0])))
        shown.append(np.rint((pixels + 1) * 127.5).clip(0, 255).astype(np.uint8))
    return {
        "doubt_photos": np.array([photos[each].path for each in order], str),
        "doubt_labels": labels[order],
        "doubt_predictions": found[order],
        "doubt_shares": ((scores.max(axis=1)[order] + 1) / 2).clip(0, 1),
        "doubt_trained": np.array([places[each][0] == 0 for each in order], bool),
        "doubt_images": np.array(shown, np.uint8),
        "unreadable": np.array([splits[n].photos[place].path for n, place in unreadable], str),
        "compared": np.array(len(photos)),
        "step": np.array(step),
    }


def _out_of_fold(features, labels, num_classes):
    """Returns scores in about [-1, 1], (photos, classes), each by a classifier without its fold."""
    folds, scores = np.arange(len(labels)) % FOLDS, np.zeros((len(labels), num_classes))
    for fold in range(min(FOLDS, len(labels))):
        others = folds != fold
        fitted = LeastSquares(features[others], labels[others], num_classes)
        scores[~others] = fitted.scores(features[~others], L2)
    return scores


def keep_doubts(
    run: pathlib.Path,
    data: np.ndarray,
    source: KerasFunction,
    config: Mapping[str, Any],
    dataset: Dataset,
    step: int,
) -> None:
    """Writes the arrays of `doubtful_labels` into a run directory, for `kept_doubts`.

    Those of an earlier step of the same `data`, `fingerprint.as_numbers`, stay; data that changed
    is compared anew. Other arguments as of `doubtful_labels`.
    """
    kept: Mapping[str, np.ndarray] = {}
    with contextlib.suppress(ValueError):  # damaged: written anew
        kept = kept_doubts(run)
    if kept and kept["step"] <= step and np.array_equal(kept["data"], data):
        return
    found: dict[str, Any] = doubtful_labels(source, config, dataset, step)
    if found:
        with atomic_file(run / FILE) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, data=data, **found)


def kept_doubts(run: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays that training left in a run directory, {} where it left none."""
    if not (run / FILE).is_file():
        return {}
    advice = "Remove the file: the next page is drawn without it."
    with damage_named(f"{run / FILE} is damaged", advice), np.load(run / FILE) as kept:
        return dict(kept)


def doubt_table(arrays: Mapping[str, np.ndarray], class_names: Sequence[str]) -> Table:
    """Returns the photos of `doubtful_labels` as a table, with the names of their classes."""
    columns = ("labels", "predictions", "shares", "trained")
    rows = [
        (photo, class_names[label], class_names[found], f"{share:.2f}", "yes" if trained else "no")
        for photo, label, found, share, trained in zip(
            arrays["doubt_photos"], *(arrays[f"doubt_{each}"] for each in columns), strict=True
        )
    ]
    return Table(("file", "folder", "prediction", "probability", "trained on"), rows)
