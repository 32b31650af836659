"""The paper's protocol for one data set (appendix B.1.1).

Every learning rate is trained once on part of the training set and scored on the rest of it, the
development split. The best rate is trained on the whole training set, once per seed, and scored
on the test split; the mean and standard deviation over the seeds are what Table 2 prints.
"""

import copy
import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from ml_collections import ConfigDict

from ..data import Dataset
from ..data.sets import splits
from ..errors import TrainingError
from ..evaluators import classification
from ..inference.open_model import open_source
from ..io.atomic import write_text
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..io.remote_stores import local_file
from ..paper_tables import TABLE_2, TABLE_5, TABLE_6, UPSTREAM, MeanDeviation
from ..reporting.matplotlib_figures import new_figure, write_png
from ..tasks import Metric, task_of
from . import train_unless_finished as runs
from .train_unless_finished import RunResult

logger = logging.getLogger("keras_vit")

# Scored with the same weights: the paper's ImageNet ReaL column, and ImageNet-V2.
FURTHER_TEST_SETS = {"imagenet2012": ("imagenet2012_real", "imagenet_v2")}


@dataclasses.dataclass(frozen=True)
class Transfer:
    """The results of the protocol on one data set."""

    dataset: str
    metric: Metric  # that rates are compared by
    development: dict[float, RunResult]  # by rate; empty of only one, which needs no selection
    rate: float  # that was chosen
    test: dict[int, RunResult]  # by seed

    @property
    def accuracies(self) -> list[float]:
        """The scores in percent on the test split, one per seed."""
        return [result.percent for result in self.test.values()]


def development_splits(dataset: Dataset, train_split: str, share: float) -> tuple[str, str]:
    """Returns (train, development) parts of a training split; raises ValueError for fewer than 2.

    Where the data set has a development split of its own for the whole of `train_split`, as the
    paper's data sets and VTAB's tasks do, that one; otherwise the last `share`, in (0, 1), of
    `train_split`, of whole splits and percentages of photos the last part of each class.
    """
    spec = dataset.spec
    if spec.dev and train_split in ("train", "train800val200"):
        return spec.dev
    if dataset.photos:
        return splits.divide(train_split, spec.sizes, share)
    size = dataset.split(train_split).num_examples
    kept = size - max(1, round(share * size))
    if kept < 1:
        raise ValueError(
            f"Expected at least 2 images to split. Received: {train_split} with {size}"
        )
    first, second, seen = [], [], 0
    for part in spec.ranges(train_split):
        boundary = min(max(kept - seen, 0), part.size) + part.start
        if boundary > part.start:
            first.append(f"{part.split}[{part.start}:{boundary}]")
        if boundary < part.stop:
            second.append(f"{part.split}[{boundary}:{part.stop}]")
        seen += part.size
    return "+".join(first), "+".join(second)


def transfer(
    config: ConfigDict,
    workdir: pathlib.Path,
    dataset: Dataset,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    development: tuple[str, str],
) -> Transfer:
    """Runs the protocol; after an interruption, the rest of it.

    Args:
        config: of the final runs: `train_split` is the whole training set, `eval_split` the test.
        workdir: holds a run directory for each rate and seed. Finished runs are not run again.
        dataset: `config.dataset`, open.
        rates: learning rates to choose from; one rate is taken as it is.
        seeds: of the final runs.
        development: the splits that rates are trained on and scored on.

    Raises:
        UsageError: if runs would end or be handed over by what they score on the test split, or
            the weights that all begin from were replaced meanwhile.
        TrainingError: if every rate diverged, or the chosen one did on the whole training set.
    """
    runs.require_last_update(config)
    scores, found = {}, {}
    (rate, *others) = rates
    with runs.same_weights(config.checkpoint):
        if others:
            scores = score_rates(config, workdir, dataset, rates, development)
            rate = choose_rate([scores])
        chosen = _with_rate(config, rate)
        for seed, result in runs.train_seeds(chosen, workdir / "test", dataset, seeds):
            if result.diverged:
                raise TrainingError(
                    f"The chosen rate {rate:g} diverged with seed {seed} on the whole training "
                    f"set: {result.diverged} Leave it out of --rates, in a new --workdir."
                )
            found[seed] = result
    return Transfer(config.dataset, task_of(config).main, scores, rate, found)


def score_rates(
    config: ConfigDict,
    workdir: pathlib.Path,
    dataset: Dataset,
    rates: Sequence[float],
    development: tuple[str, str],
) -> dict[float, RunResult]:
    """Returns for each rate how it scores on the development split; arguments as `transfer`'s."""
    train, score = development
    parts, found = {"train_split": train, "eval_split": score}, {}
    for number, rate in enumerate(rates, 1):
        run, changed = workdir / "development" / f"lr_{rate:g}", _with_rate(config, rate, **parts)
        found[rate] = result = runs.train_run(changed, run, dataset)
        words = (config.dataset, rate, number, len(rates), result, score)
        logger.info("%s, rate %g (%d of %d): %s on %s", *words)
    return found


def choose_rate(scores: Sequence[Mapping[float, RunResult]]) -> float:
    """Returns the rate of highest mean accuracy over data sets; of equal ones the smallest.

    `scores` are what `score_rates` returned for each data set, with the same rates. A rate that
    diverged on one of them is not chosen; raises `TrainingError` if no rate is left.
    """
    means = {
        # Sums of other parts that are equal differ by their rounding.
        rate: round(float(np.mean([of_dataset[rate].percent for of_dataset in scores])), 10)
        for rate in scores[0]
        if not any(of_dataset[rate].diverged for of_dataset in scores)
    }
    if not means:
        raise TrainingError(
            f"Every rate diverged: {', '.join(f'{rate:g}' for rate in scores[0])}. "
            "Add smaller ones to --rates."
        )
    return min(means, key=lambda rate: (-means[rate], rate))


def score_further_test_sets(
    config: ConfigDict, workdir: pathlib.Path, test_sets: Sequence[Dataset], seeds: Sequence[int]
) -> dict[str, list[float]]:
    """Scores the runs of `transfer`, of the same arguments, on some of `FURTHER_TEST_SETS`.

    Returns {data set: top-1 accuracies in percent, one per seed}.
    """
    main = task_of(config).main.name
    folders = [workdir / "test" / f"seed_{seed}" for seed in seeds]
    return {
        each.name: [100 * _score(config, each, run)[main] for run in folders] for each in test_sets
    }


def _with_rate(config, rate, **changes):
    changed = copy.deepcopy(config)
    changed.update({"optimizer": {"base_lr": rate}, **changes})
    return changed


def _score(config, dataset, run):
    split = dataset.split("test")

    def evaluate():
        batch_size = config.eval_batch_size or config.batch_size
        with local_file(run) as copy:
            model = open_source(copy)
            batches = model.batches(split, config.eval_preprocess, batch_size)
            shown = track(batches, f"{run.name} on {dataset.name}")
            result = classification.evaluate(model, shown)
        del result["confusion"]
        return result

    return runs.computed_once(run / f"{dataset.name}.json", evaluate, [split.identity])


def sweep_table(
    found: Transfer,
    published: Sequence[tuple[str, str]] = (),
    further: Mapping[str, Sequence[float]] | None = None,
) -> Table:
    """Returns the table of a sweep: rates, seeds, mean and standard deviation.

    The arguments are what `transfer`, `published_results` and `score_further_test_sets` returned.
    """
    rows: list[tuple] = []
    for rate, result in found.development.items():
        accuracy = "diverged" if result.diverged else f"{result.percent:.2f}"
        chosen = " (chosen)" * (rate == found.rate)
        rows.append(("development", f"rate {rate:g}{chosen}", accuracy, result.count))
    for seed, result in found.test.items():
        run = f"rate {found.rate:g}, seed {seed}"
        rows.append(("test", run, f"{result.percent:.2f}", result.count))
    for name, accuracies in {"test": found.accuracies, **(further or {})}.items():
        mean = str(MeanDeviation.of(accuracies))
        rows.append((name, f"mean of {len(accuracies)}", mean, ""))
    rows += [("paper", where, result, "") for where, result in published]
    columns = ("split", "run", f"{found.metric.title} %", "images")
    return Table(columns, rows, f"Fine-tuning on {found.dataset}")


def published_results(model: str, dataset: str) -> list[tuple[str, str]]:
    """Returns (where, accuracy in percent) for the paper's results of a model on a data set."""
    found = []
    for number, table in ((2, TABLE_2), (5, TABLE_5), (6, TABLE_6)):
        for (name, source), row in table.items():
            # Table 5 has the longest runs of the Vision Transformers already.
            known = number == 6 and (name, "jft") in TABLE_5
            if name == model and dataset in row and not known:
                where = UPSTREAM.get(source) or f"{UPSTREAM['jft']}, {source} epochs"
                result = row[dataset]
                shown = str(result) if number == 2 else f"{result:.2f}"
                found.append((f"Table {number}, {where}", shown))
    return found


def _sweep_figure(found):
    """Draws development scores over the learning rate, and the test scores at the chosen one."""
    figure, (axes,) = new_figure()
    development = found.development.items()
    finished = sorted((rate, result.percent) for rate, result in development if result.count)
    if finished:
        axes.plot(*zip(*finished, strict=True), "o-", label="development")
    mean, deviation = MeanDeviation.of(found.accuracies)
    label = "test" if deviation is None else f"test ({len(found.test)} seeds)"
    axes.errorbar(found.rate, mean, yerr=deviation, fmt="s", capsize=4, label=label)
    axes.set(xscale="log", xlabel="learning rate", ylabel=f"{found.metric.title}, %")
    axes.set_title(found.dataset)
    axes.legend()
    return figure


def write_sweep(found: Transfer, table: Table, workdir: pathlib.Path) -> None:
    """Writes `sweep.md`, `sweep.csv` and `sweep.png` into `workdir`."""
    write_text(workdir / "sweep.md", table.markdown())
    write_text(workdir / "sweep.csv", table.csv())
    write_png(_sweep_figure(found), workdir / "sweep.png")
