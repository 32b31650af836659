"""Few-shot evaluation of a model on data sets: images to features to accuracies."""

import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np

from keras_vit.training.data import Dataset, Split
from keras_vit.training.evaluators import least_squares
from keras_vit.training.evaluators.evaluated_model import FrozenModel, freeze
from keras_vit.training.io.atomic import atomic_file
from keras_vit.training.io.printed_table import Table
from keras_vit.training.io.progress_bar import track

# (images, dimensions) float32, and their labels, (images,) int32.
Features: TypeAlias = tuple[np.ndarray, np.ndarray]

# The authors' code does not use the whole of `train` and `test` of these.
SPLITS = {
    "imagenet2012": ("train[:65000]", "validation"),
    "tfds:uc_merced": ("train[:1000]", "train[1000:]"),
}


class Task(NamedTuple):
    """The split that examples are chosen from and the one that is classified."""

    train: Split
    test: Split

    @property
    def name(self) -> str:
        """Of the data set."""
        return self.train.dataset.name


def open_task(
    dataset: Dataset, train_split: str | None = None, test_split: str | None = None
) -> Task:
    """Returns splits of a data set; those that are not given are those of the authors' code.

    Raises:
        ValueError: for unknown splits.
    """
    train, test = SPLITS.get(dataset.name, ("train", "test"))
    task = Task(dataset.split(train_split or train), dataset.split(test_split or test))
    task.test.warn_of_shared(task.train)
    return task


def preprocessing(model: FrozenModel) -> str:
    """Returns the authors' preprocessing: all of the image resized to 8/7, and its center."""
    (height, width), (low, high) = model.image_size, model.image_range
    larger = f"[{round(height * 8 / 7)},{round(width * 8 / 7)}]"
    return f"decode|resize({larger})|central_crop([{height},{width}])|value_range({low:g},{high:g})"


def extract_features(function: Callable, dataset: Iterable[Mapping]) -> Features:
    """Returns the features and labels of every image that is not padding.

    Args:
        function: images -> (batch, dimensions) floats.
        dataset: batches of `{"image", "label", "mask"}` with one label per image; label is
            (batch, classes) one-hot, mask (batch,) is 0 for padding and may be absent.
    """
    features, labels = [], []
    for batch in dataset:
        one_hot = np.asarray(batch["label"])
        kept = np.asarray(batch["mask"]) > 0 if "mask" in batch else np.ones(len(one_hot), bool)
        if (np.count_nonzero(one_hot[kept], axis=1) != 1).any():
            raise ValueError(
                "Expected exactly one label for every image. Received: images with several or "
                "none, which a linear classifier cannot be solved from."
            )
        values = np.asarray(function(batch["image"]), np.float32)
        if values.ndim != 2:
            raise ValueError(
                "Expected features of shape (batch, dimensions). "
                f"Received: {values.shape}; name a pooled output with --layer"
            )
        features.append(values[kept])
        labels.append(one_hot[kept].argmax(axis=1).astype(np.int32))
    return np.concatenate(features), np.concatenate(labels)


def kept_features(path: os.PathLike) -> Features | None:
    """Returns what a file of the cache holds; None without one, or if it is damaged."""
    try:
        with np.load(path) as file:
            return file["features"], file["labels"]
    except Exception:
        return None


def evaluate(
    model: FrozenModel,
    of: Task,
    *,
    preprocess: str | None = None,
    batch_size: int = 128,
    cache: str | os.PathLike | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[least_squares.Result]:
    """Returns the few-shot accuracies of a model on one data set.

    Args:
        model: from `training.evaluators.evaluated_model`.
        of: the splits.
        preprocess: text of operations; None is `preprocessing(model)`.
        batch_size: images per call of the model.
        cache: folder that keeps features between calls; None keeps nothing.
        progress: whether to show how far the images are.
        **settings: `shots`, `seeds` and `l2` of `least_squares.evaluate`.
    """
    text = preprocess or preprocessing(model)

    def features_of(split):
        batches = model.batches(split, text, batch_size)
        if progress:
            batches = track(batches, f"{model.name} on {of.name} {split.text}")
        if cache is None:
            return extract_features(model.features, batches)
        depends_on = {
            "model": model.identity,
            "data": split.identity,
            "label": split.dataset.spec.label,
            "preprocess": text,
        }
        key = json.dumps(depends_on, sort_keys=True)
        path = pathlib.Path(cache, f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz")
        found = kept_features(path)
        if found is None:
            found = features, labels = extract_features(model.features, batches)
            # An image that was left out may be read next time.
            if not (split.left_out and split.left_out.examples):
                with atomic_file(path) as temporary:
                    np.savez(temporary, features=features, labels=labels, key=np.array(key))
        return found

    return least_squares.evaluate(
        features_of(of.train), features_of(of.test), of.train.dataset.num_classes, **settings
    )


def summary(results: Mapping[tuple[str, str], Sequence[least_squares.Result]]) -> Table:
    """Returns a table: a row for each data set, model and penalty, a column for each shot count.

    Where there are several penalties, only the best for each number of shots is shown: the one
    that `least_squares.best_l2` selects over all data sets of the model.

    Args:
        results: {(data set, name of the model): what `evaluate` returned}.
    """
    models = dict.fromkeys(model for _, model in results)
    chosen = {
        model: least_squares.best_l2(
            [found for (_, name), found in results.items() if name == model]
        )
        for model in models
    }
    shots = sorted({result.shots for found in results.values() for result in found})
    rows = []
    for (dataset, model), found in results.items():
        means = least_squares.mean_accuracies(found)
        cells = [str(means[k, chosen[model][k]].percent) for k in shots]
        penalties = sorted({chosen[model][k] for k in shots})
        rows.append((dataset, model, *cells, ", ".join(f"{l2:g}" for l2 in penalties)))
    columns = ("data set", "model", *(f"{k}-shot %" for k in shots), "l2")
    return Table(columns, rows, "Few-shot linear accuracy")


class FewShotEvaluator:
    """Evaluates the representation of a model, while it trains or at any time; see `Evaluator`.

    Yields `few_shot/DATASET_5`, with the number of shots; values are means over seeds, in [0, 1].

    Args:
        tasks: of `open_task`.
        every_steps: 0 evaluates after the last step only.
        shots: of `least_squares.evaluate`.
        **settings: `preprocess`, `batch_size`, `seeds` and one penalty `l2` of `evaluate`.

    Examples:
        >>> cifar10 = data.open_dataset("cifar10", "/data/tfds")
        >>> evaluator = FewShotEvaluator([few_shot.open_task(cifar10)], shots=[5])
        >>> dict(evaluator.run(model))
        {'few_shot/cifar10_5': 0.41}
    """

    distributed = False

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        every_steps: int = 0,
        shots: Sequence[int] = least_squares.SHOTS,
        **settings: Any,
    ):
        self.tasks = list(tasks)
        self.names = tuple(f"few_shot/{each.name}_{k}" for each in self.tasks for k in shots)
        self.every_steps = every_steps
        self.settings = {"shots": tuple(shots), **settings}
        # Kept, so that a model is traced once and not at every evaluation.
        self._freeze = functools.lru_cache(1)(freeze)

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the accuracies of `model` with the weights that it has at that moment."""
        frozen = self._freeze(model, model.name, identified=False)
        for each in self.tasks:
            results = evaluate(frozen, each, **self.settings)
            for (shots, _), (mean, _) in least_squares.mean_accuracies(results).items():
                yield f"few_shot/{each.name}_{shots}", mean
