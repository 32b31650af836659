"""Few-shot evaluation of a model on data sets: images to features to accuracies."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from ml_collections import ConfigDict

from training.data import Dataset, Split, open_dataset
from training.evaluators import features, least_squares
from training.evaluators.frozen_model import FrozenModel, freeze
from training.io.track import track
from training.reporting.table import Table

# Where the authors' code does not use the whole of `train` and `test`.
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
    return Task(dataset.split(train_split or train), dataset.split(test_split or test))


def preprocessing(model: FrozenModel) -> str:
    """Returns the authors' preprocessing: all of the image resized to 8/7, and its center."""
    (height, width), (low, high) = model.image_size, model.image_range
    larger = f"[{round(height * 8 / 7)},{round(width * 8 / 7)}]"
    return f"decode|resize({larger})|central_crop([{height},{width}])|value_range({low:g},{high:g})"


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
        model: from `training.evaluators.frozen_model`.
        of: the splits.
        preprocess: text of operations; None is `preprocessing(model)`.
        batch_size: images per call of the model.
        cache: folder that keeps features between calls; None keeps nothing.
        progress: whether to show how far the images are.
        **settings: `shots`, `seeds` and `l2` of `least_squares.evaluate`.
    """
    text = preprocess or preprocessing(model)

    def features_of(split):
        operations = split.preprocess(text)

        def compute():
            dataset = split.evaluate(operations, batch_size=batch_size)
            if progress:
                dataset = track(dataset, f"{model.name} on {of.name} {split.text}")
            return features.extract(model.features, dataset)

        if cache is None:
            return compute()
        key = {
            "model": model.identity,
            "data": split.identity,
            "label": split.dataset.spec.label,
            "preprocess": text,
        }
        return features.cached(key, compute, cache)

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
        shots, seeds: of `least_squares.evaluate`.
        l2: one penalty.
        **settings: `preprocess` and `batch_size` of `evaluate`.

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
        seeds: Sequence[int] = least_squares.SEEDS,
        l2: float = least_squares.L2,
        **settings: Any,
    ):
        self.tasks = list(tasks)
        self.names = tuple(f"few_shot/{each.name}_{k}" for each in self.tasks for k in shots)
        self.every_steps = every_steps
        self.shots, self.seeds, self.l2 = tuple(shots), tuple(seeds), l2
        self.settings = settings
        self._loaded: tuple[keras.Model, FrozenModel] | None = None

    @classmethod
    def from_config(cls, config: ConfigDict, dataset: Dataset) -> "FewShotEvaluator":
        """Returns the evaluator of `config.few_shot`; `dataset` is that of the run.

        Raises:
            NotPreparedError: if a data set is not on disk, at once and not in the middle of
                training.
        """
        wanted = config.few_shot
        datasets = [
            dataset if name == config.dataset else open_dataset(name, config.data_dir)
            for name in wanted.datasets.split(",")
        ]
        return cls(
            list(map(open_task, datasets)),
            every_steps=wanted.every_steps,
            shots=wanted.shots,
        )

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the accuracies of `model` with the weights that it has at that moment."""
        if self._loaded is None or self._loaded[0] is not model:
            # Kept, so that the model is traced once and not at every evaluation.
            self._loaded = model, freeze(model, model.name, identified=False)
        _, loaded = self._loaded
        for each in self.tasks:
            results = evaluate(
                loaded, each, shots=self.shots, seeds=self.seeds, l2=self.l2, **self.settings
            )
            for (shots, _), (mean, _) in least_squares.mean_accuracies(results).items():
                yield f"few_shot/{each.name}_{shots}", mean
