"""Few-shot evaluation of a model on data sets: images to features to accuracies."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from ml_collections import ConfigDict

from training.data import dataset_lookup, known_datasets
from training.data.skip_counter import SkipCounter
from training.engines.base import Engine
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
    """A data set, the split that examples are chosen from and the one that is classified."""

    dataset: str
    train_split: str
    test_split: str


def task(dataset: str, train_split: str | None = None, test_split: str | None = None) -> Task:
    """Returns a task; splits that are not given are those of the authors' code."""
    train, test = SPLITS.get(known_datasets.SHORT_NAMES.get(dataset, dataset), ("train", "test"))
    return Task(dataset, train_split or train, test_split or test)


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
    data_dir: str | os.PathLike | None = None,
    batch_size: int = 128,
    cache: str | os.PathLike | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[least_squares.Result]:
    """Returns the few-shot accuracies of a model on one data set.

    Args:
        model: from `training.evaluators.frozen_model`.
        of: the data set.
        preprocess: text of operations; None is `preprocessing(model)`.
        data_dir: folder of prepared data sets.
        batch_size: images per call of the model.
        cache: folder that keeps features between calls; None keeps nothing.
        progress: whether to show how far the images are.
        **settings: `shots`, `seeds` and `l2` of `least_squares.evaluate`.
    """
    from training.data import pipeline, random_access, tfds_folder

    preprocess = preprocess or preprocessing(model)

    def split_features(split):
        def compute():
            dataset = pipeline.eval_dataset(
                name=of.dataset,
                split=split,
                preprocess=preprocess,
                batch_size=batch_size,
                data_dir=data_dir,
            )
            if progress:
                dataset = track(dataset, f"{model.name} on {of.dataset} {split}")
            return features.extract(model.features, dataset)

        if cache is None:
            return compute()
        source = random_access.open_source(of.dataset, split, data_dir)
        key = {
            "model": model.identity,
            "dataset": of.dataset,
            "data_dir": str(tfds_folder.resolve_data_dir(data_dir)),
            "sizes": dict(source.spec.sizes),
            "version": source.spec.version,
            "split": split,
            "preprocess": preprocess,
        }
        return features.cached(key, compute, cache)

    num_classes = dataset_lookup.get(of.dataset, data_dir).num_classes
    return least_squares.evaluate(
        split_features(of.train_split), split_features(of.test_split), num_classes, **settings
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
        names: of data sets, or `Task`s.
        every_steps: 0 evaluates after the last step only.
        shots, seeds: of `least_squares.evaluate`.
        l2: one penalty.
        **settings: `preprocess`, `data_dir` and `batch_size` of `evaluate`.

    Raises:
        NotPreparedError: if a data set is not on disk, at once and not in the middle of training.

    Examples:
        >>> evaluator = FewShotEvaluator(["cifar10"], shots=[5], data_dir="/data/tfds")
        >>> dict(evaluator.run(model))
        {'few_shot/cifar10_5': 0.41}
    """

    distributed = False

    def __init__(
        self,
        names: Sequence[str | Task],
        *,
        every_steps: int = 0,
        shots: Sequence[int] = least_squares.SHOTS,
        seeds: Sequence[int] = least_squares.SEEDS,
        l2: float = least_squares.L2,
        **settings: Any,
    ):
        self.tasks = [each if isinstance(each, Task) else task(each) for each in names]
        self.names = tuple(f"few_shot/{each.dataset}_{k}" for each in self.tasks for k in shots)
        self.every_steps = every_steps
        self.shots, self.seeds, self.l2 = tuple(shots), tuple(seeds), l2
        self.settings = settings
        self._loaded: tuple[keras.Model, FrozenModel] | None = None
        for each in self.tasks:
            data_dir = settings.get("data_dir")
            dataset_lookup.locate(dataset_lookup.get(each.dataset, data_dir), data_dir)

    @classmethod
    def from_config(
        cls,
        config: ConfigDict,
        engine: Engine,
        loss: keras.losses.Loss,
        skip_counter: SkipCounter,
    ) -> "FewShotEvaluator | None":
        """Returns the evaluator of `config.few_shot`, or None if it names no data set."""
        wanted = config.few_shot
        if not wanted.datasets:
            return None
        return cls(
            wanted.datasets.split(","),
            every_steps=wanted.every_steps,
            shots=wanted.shots,
            data_dir=config.data_dir or None,
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
                yield f"few_shot/{each.dataset}_{shots}", mean
