"""Few-shot evaluation of a frozen model: images to features to linear classifiers (section 4.1).

The classifiers are those of `keras_vit.few_shot_head`, solved in closed form from a few labeled
examples per class.
"""

import functools
import hashlib
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np

from keras_vit.few_shot_head import L2, LeastSquares

from ..data import Dataset, Split
from ..data.preprocessing.parse_operations import parse
from ..errors import first_line
from ..inference.image_function import ImageFunction, KerasFunction
from ..io.atomic import atomic_file
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..paper_tables import L2_SWEEP, MeanDeviation
from ..tasks import COUNTED
from .nearest_neighbors import knn_accuracy

logger = logging.getLogger("keras_vit")

# (images, dimensions) float32, and their labels, (images,) int32.
Features: TypeAlias = tuple[np.ndarray, np.ndarray]
# {(shots, seed, l2): fraction in [0, 1] of the test examples whose largest score is at the label}.
Accuracies: TypeAlias = Mapping[tuple[int, int, float], float]

SHOTS = (1, 5, 10, 25)
SEEDS = (0, 1, 2)
# The authors' code does not use the whole of `train` and `test` of these.
SPLITS = {
    "imagenet2012": ("train[:65000]", "validation"),
    "tfds:uc_merced": ("train[:1000]", "train[1000:]"),
}


def choose_examples(labels: np.ndarray, num_classes: int, seed: int) -> list[np.ndarray]:
    """Returns for each class a shuffled list of its indices; k shots are the first k of each.

    One generator shuffles the classes in order, so the examples of fewer shots are among those
    of more shots with the same seed. `labels` are (examples,) integers; a class without examples
    gets an empty list.
    """
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.flatnonzero(labels == label)) for label in range(num_classes)]


def evaluate_features(
    train: Features,
    test: Features,
    num_classes: int,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    l2: float | Sequence[float] = L2,
) -> Accuracies:
    """Returns the accuracy on all of `test` for every number of shots, seed and penalty.

    `shots` are examples per class, chosen from `train` by each seed; no value is given twice. A
    class that has fewer gives all it has, and is warned of. Labels are integers below
    `num_classes`.
    """
    x, y = train
    _require_finite(x, test[0])
    fewest = np.bincount(y, minlength=num_classes).min()
    if larger := [k for k in shots if k > fewest]:
        logger.warning(
            "Expected %d examples of each class, for %s shots. Some class has %d, and gives all.",
            *(max(larger), ", ".join(map(str, larger)), fewest),
        )
    penalties = [float(penalty) for penalty in np.atleast_1d(l2)]
    accuracies = {}
    for seed in seeds:
        candidates = choose_examples(y, num_classes, seed)
        for k in shots:
            chosen = np.concatenate([indices[:k] for indices in candidates])
            found = _accuracies((x[chosen], y[chosen]), test, num_classes, penalties)
            for penalty, accuracy in zip(penalties, found, strict=True):
                accuracies[k, seed, penalty] = accuracy
    return accuracies


def linear_probe(train: Features, test: Features, num_classes: int) -> tuple[float, float]:
    """Returns the accuracy on `test` of a classifier of all of `train`, and its penalty.

    The penalty is that of `L2_SWEEP` of which a classifier of four fifths of `train` is right most
    often on the last fifth, which is drawn at random from a fixed seed; of equal ones the largest.
    All of `train` is then solved with it. Labels are integers below `num_classes`.
    """
    x, y = train
    _require_finite(x, test[0])
    if len(y) < 2:
        raise ValueError(f"Expected two images or more to train on. Received: {len(y)}")
    held, others = np.split(np.random.default_rng(0).permutation(len(y)), [-(-len(y) // 5)])
    found = _accuracies((x[others], y[others]), (x[held], y[held]), num_classes, L2_SWEEP)
    _, penalty = max(zip(found, L2_SWEEP, strict=True))
    return _accuracies(train, test, num_classes, [penalty])[0], penalty


def _require_finite(*features):
    if not all(np.isfinite(each).all() for each in features):
        raise ValueError("Expected finite features. Received: infinite or undefined values")


def _accuracies(train, test, num_classes, penalties):
    """Returns the accuracy on `test` of the classifier of `train` with each penalty."""
    solution, (features, labels) = LeastSquares(*train, num_classes), test
    return [float(np.mean(each == labels)) for each in solution.classes(features, penalties)]


def best_l2(found: Sequence[Accuracies]) -> dict[int, float]:
    """Returns one penalty per number of shots for several data sets: the one of highest mean rank.

    The rule by which publications before the fixed penalty chose it: accuracies, averaged over
    seeds, are ranked within each data set, and the ranks averaged. It looks at test accuracies,
    so what it selects is an upper bound rather than an estimate. All data sets have the same
    shots and penalties.
    """
    from scipy.stats import rankdata  # slow to import

    means = [mean_accuracies(of_data_set) for of_data_set in found]
    best = {}
    for k in sorted({shots for shots, _ in means[0]}):
        penalties = sorted(l2 for shots, l2 in means[0] if shots == k)
        # Equal accuracies share the mean of their ranks.
        ranks = [rankdata([of_set[k, l2].mean for l2 in penalties]) for of_set in means]
        # Among equally good penalties the largest is the safest.
        _, best[k] = max(zip(np.mean(ranks, axis=0), penalties, strict=True))
    return best


def mean_accuracies(found: Accuracies) -> dict[tuple[int, float], MeanDeviation]:
    """Returns {(shots, l2): mean and deviation over the seeds}."""
    by_seed: dict[tuple[int, float], list[float]] = {}
    for (shots, _, l2), accuracy in found.items():
        by_seed.setdefault((shots, l2), []).append(accuracy)
    return {key: MeanDeviation.of(values) for key, values in by_seed.items()}


class FewShotTask(NamedTuple):
    """The split that examples are chosen from and the one that is classified."""

    train: Split
    test: Split

    @property
    def name(self) -> str:
        """Of the data set."""
        return self.train.dataset.name


def open_task(
    dataset: Dataset, train_split: str | None = None, test_split: str | None = None
) -> FewShotTask:
    """Returns splits of a data set, by default those of the authors' code.

    Raises `ValueError` for unknown splits, and images of several labels.
    """
    label = dict(dataset.info.features.items()).get("label") if dataset.info else None
    if label is not None and label.shape:
        raise ValueError(
            "Expected one label for every image, as a linear classifier is solved from. "
            f"Received: {dataset.name}, whose images have several."
        )
    train, test = SPLITS.get(dataset.name, ("train", "test"))
    task = FewShotTask(dataset.split(train_split or train), dataset.split(test_split or test))
    task.test.warn_of_shared(task.train)
    return task


def preprocessing(model: ImageFunction) -> str:
    """Returns the authors' preprocessing: all of the image resized to 8/7, and its center."""
    (height, width), (low, high) = model.interface.image_size, model.interface.image_range
    larger = f"[{round(height * 8 / 7)},{round(width * 8 / 7)}]"
    return f"decode|resize({larger})|central_crop([{height},{width}])|value_range({low:g},{high:g})"


def extract_features(function: Callable, dataset: Iterable[Mapping]) -> Features:
    """Returns the features and labels of every image that is not padding.

    `function` maps images to (batch, dimensions) floats. Batches are `{"image", "label",
    "counted"}` with one label per image: (batch, classes) one-hot; counted, (batch,), is 0 for
    padding and may be absent.
    """
    features, labels = [], []
    for batch in dataset:
        one_hot = np.asarray(batch["label"])
        kept = np.asarray(batch.get(COUNTED, np.ones(len(one_hot)))) > 0
        if (np.count_nonzero(one_hot[kept], axis=1) != 1).any():
            raise ValueError(
                "Expected exactly one label for every image. Received: images with several or "
                "none, which a linear classifier cannot be solved from."
            )
        values = function(batch["image"])
        if np.ndim(values) != 2:
            raise ValueError(
                "Expected features of shape (batch, dimensions). "
                f"Received: {np.shape(values)}; name a pooled output with --layer"
            )
        values = np.asarray(values, np.float32)
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


def evaluate(model: ImageFunction, of: FewShotTask, **settings: Any) -> Accuracies:
    """Returns the few-shot accuracies of a model on one data set.

    `settings` are those of `features_of_task`, and `shots`, `seeds` and `l2` of
    `evaluate_features`, which says what is raised.
    """
    solved, read = _solved_and_read(settings)
    return evaluate_features(
        *features_of_task(model, of, **read), of.train.dataset.num_classes, **solved
    )


def _solved_and_read(settings):
    """Returns those of `evaluate_features`, and the others, of `features_of_task`."""
    solved = {name: settings[name] for name in ("shots", "seeds", "l2") if name in settings}
    return solved, {name: settings[name] for name in settings.keys() - solved}


def features_of_task(
    model: ImageFunction,
    of: FewShotTask,
    *,
    preprocess: str | None = None,
    batch_size: int = 128,
    cache: str | os.PathLike | None = None,
    progress: bool = False,
) -> tuple[Features, Features]:
    """Returns the features and labels of the two splits of a data set.

    Args:
        model: from `training.inference`.
        of: the splits.
        preprocess: text of operations; None is `preprocessing(model)`.
        batch_size: images per call of the model.
        cache: folder that keeps features between calls; None keeps nothing. Nor are those kept
            of a `preprocess` with operations of one's own, whose code may change.
        progress: whether to show how far the images are.

    Raises:
        TrainingError: if files of a split were replaced while it was read.
    """
    text = preprocess or preprocessing(model)
    if any(operation.own for operation in parse(text)):
        cache = None
    # The reading of one split takes long: `require_unchanged` compares both with now.
    identities = {split: split.identity for split in of}

    def features_of(split):
        depends_on = {
            "model": model.identity,
            "data": identities[split],
            "label": split.dataset.spec.label,
            "preprocess": text,
        }
        key = json.dumps(depends_on, sort_keys=True)
        name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
        batches = model.batches(split, text, batch_size)
        found = None if cache is None else kept_features(pathlib.Path(cache, name))
        if found is None:
            if progress:
                batches = track(batches, f"{model.name} on {of.name} {split.text}")
            found = features, labels = extract_features(model.features, batches)
            split.require_unchanged()
            # An image that was left out may be read next time.
            if cache is not None and not (split.left_out and split.left_out.examples):
                try:
                    with atomic_file(pathlib.Path(cache, name)) as temporary:
                        np.savez(temporary, features=features, labels=labels, key=np.array(key))
                except OSError as error:
                    logger.warning("Features are not kept: %s", first_line(error))
        return found

    return features_of(of.train), features_of(of.test)


def summary(
    results: Mapping[tuple[str, str], Accuracies],
    more: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType({}),
) -> Table:
    """Returns a table: a row for each data set, model and penalty, a column for each shot count.

    Where there are several penalties, only the best for each number of shots is shown: the one
    that `best_l2` selects over all data sets of the model. `results` are {(data set, name of the
    model): what `evaluate` returned}, `more` the same columns and texts for each of them.
    """
    models = dict.fromkeys(model for _, model in results)
    chosen = {
        model: best_l2([found for (_, name), found in results.items() if name == model])
        for model in models
    }
    shots = sorted({k for found in results.values() for k, _, _ in found})
    rows = []
    for (dataset, model), found in results.items():
        means = mean_accuracies(found)
        cells = [str(means[k, chosen[model][k]].percent) for k in shots]
        penalties = [f"{chosen[model][k]:g}" for k in shots]
        penalties = penalties if len(set(penalties)) > 1 else penalties[:1]
        others = more.get((dataset, model), {}).values()
        rows.append((dataset, model, *cells, ", ".join(penalties), *others))
    added = next(iter(more.values()), {})
    columns = ("data set", "model", *(f"{k}-shot %" for k in shots), "l2", *added)
    return Table(columns, rows, "Few-shot linear accuracy")


class FewShotEvaluator:
    """Evaluates the representation of a model, while it trains or at any time; see `Evaluator`.

    Yields `few_shot/DATASET_5`, with the number of shots; values are means over seeds, in [0, 1].
    With `neighbors` also `few_shot/DATASET_knn`, of `knn_accuracy` among all of the training split,
    with `probe` `few_shot/DATASET_probe`, of `linear_probe` on all of it.

    Args:
        tasks: of `open_task`.
        every_steps: 0 evaluates after the last step only.
        shots: of `evaluate_features`.
        neighbors: of `knn_accuracy`; 0 leaves it out.
        probe: whether to add the linear probe.
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
        tasks: Sequence[FewShotTask],
        *,
        every_steps: int = 0,
        shots: Sequence[int] = SHOTS,
        neighbors: int = 0,
        probe: bool = False,
        **settings: Any,
    ):
        self.tasks = list(tasks)
        columns = [*shots, *(["knn"] * bool(neighbors)), *(["probe"] * probe)]
        self.names = tuple(f"few_shot/{each.name}_{k}" for each in self.tasks for k in columns)
        self.every_steps, self.neighbors, self.probe = every_steps, neighbors, probe
        self.settings = {"shots": tuple(shots), **settings}
        # Kept, so that a model is traced once and not at every evaluation.
        self._function = functools.lru_cache(1)(KerasFunction)

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the accuracies of `model` with the weights that it has at that moment."""
        frozen = self._function(model, identified=False)
        for each in self.tasks:
            solved, read = _solved_and_read(self.settings)
            both, classes = features_of_task(frozen, each, **read), each.train.dataset.num_classes
            found = evaluate_features(*both, classes, **solved)
            if self.neighbors:
                yield f"few_shot/{each.name}_knn", knn_accuracy(*both, classes, self.neighbors)
            if self.probe:
                yield f"few_shot/{each.name}_probe", linear_probe(*both, classes)[0]
            for (shots, _), (mean, _) in mean_accuracies(found).items():
                yield f"few_shot/{each.name}_{shots}", mean
