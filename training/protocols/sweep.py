"""The paper's protocol for one data set (appendix B.1.1).

Every learning rate is trained once on part of the training set and scored on the rest of it, the
development split. The best rate is trained on the whole training set, once per seed, and scored
on the test split; the mean and standard deviation over the seeds are what Table 2 prints.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from training.io.atomic import whole_file, write_text
from training.reporting.table import Table

RESULT = "result.json"
# Scored with the same weights: the paper's ImageNet ReaL column, and ImageNet-V2.
ALSO = {"imagenet2012": ("imagenet2012_real", "imagenet_v2")}


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How one finished run scored on its evaluation split.

    Attributes:
        top1, top5: fractions in [0, 1].
        loss: mean over the images.
        count: images scored.
        diverged: why there are no scores; "" where there are.
    """

    top1: float | None = None
    top5: float | None = None
    loss: float | None = None
    count: int = 0
    diverged: str = ""


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What the protocol found on one data set.

    Attributes:
        dataset: its name.
        development: for each rate the result on the development split; empty if there was
            only one rate, which needs no selection.
        rate: the rate that was chosen.
        test: for each seed the result on the test split.
    """

    dataset: str
    development: dict[float, RunResult]
    rate: float
    test: dict[int, RunResult]

    @property
    def accuracies(self) -> list[float]:
        """Top-1 accuracies in per cent on the test split, one per seed."""
        return [100 * result.top1 for result in self.test.values()]


def transfer(
    config,
    workdir,
    *,
    rates: Sequence[float],
    seeds: Sequence[int],
    development: tuple[str, str],
    run: Callable | None = None,
    say: Callable[[str], None] = print,
) -> Transfer:
    """Runs the protocol, or what is left of it after an interruption.

    Args:
        config: of the final runs: `train_split` is the whole training set, `eval_split` the test.
        workdir: holds a run directory for each rate and seed. Finished runs are not run again.
        rates: learning rates to choose from; one rate is taken as it is.
        seeds: of the final runs.
        development: the splits that rates are trained on and scored on.
        run: trains a config in a directory and returns its `RunResult`; `train_run` if None.
        say: is told what happens.

    Raises:
        TrainingError: if every rate diverged, or the chosen one did on the whole training set.
    """
    scores = {}
    (rate, *others) = rates
    if others:
        scores = score_rates(config, workdir, rates, development, run=run, say=say)
        rate = choose_rate([scores])
    return Transfer(
        config.dataset, scores, rate, score_seeds(config, workdir, rate, seeds, run=run, say=say)
    )


def score_rates(
    config,
    workdir,
    rates: Sequence[float],
    development: tuple[str, str],
    *,
    run: Callable | None = None,
    say: Callable[[str], None] = print,
) -> dict[float, RunResult]:
    """Returns for each rate how it scores on the development split; arguments as `transfer`'s."""
    scores = {}
    for rate in rates:
        of_rate = _changed(config, base_lr=rate, splits=development)
        directory = pathlib.Path(workdir) / "development" / f"lr_{rate:g}"
        scores[rate] = (run or train_run)(of_rate, directory)
        say(f"{config.dataset}: rate {rate:g}: {_describe(scores[rate])} on {development[1]}")
    return scores


def score_seeds(
    config,
    workdir,
    rate: float,
    seeds: Sequence[int],
    *,
    run: Callable | None = None,
    say: Callable[[str], None] = print,
) -> dict[int, RunResult]:
    """Returns for each seed how a rate scores on the test split; arguments as `transfer`'s."""
    from training.errors import TrainingError

    results = {}
    for seed in seeds:
        of_seed = _changed(config, base_lr=rate, seed=seed)
        directory = pathlib.Path(workdir) / "test" / f"seed_{seed}"
        results[seed] = (run or train_run)(of_seed, directory)
        say(f"{config.dataset}: seed {seed}: {_describe(results[seed])} on {config.eval_split}")
        if results[seed].diverged:
            raise TrainingError(
                f"The chosen rate {rate:g} diverged with seed {seed} on the whole training set: "
                f"{results[seed].diverged} Leave it out of --rates, in a new --workdir."
            )
    return results


def choose_rate(scores: Sequence[Mapping[float, RunResult]]) -> float:
    """Returns the rate of highest mean accuracy over data sets; of equal ones the smallest.

    Args:
        scores: for each data set what `score_rates` returned, with the same rates. A rate that
            diverged on one of them is not chosen.

    Raises:
        TrainingError: if no rate is left.
    """
    from training.errors import TrainingError

    means = {
        rate: np.mean([of_dataset[rate].top1 for of_dataset in scores])
        for rate in scores[0]
        if not any(of_dataset[rate].diverged for of_dataset in scores)
    }
    if not means:
        raise TrainingError(
            f"Every rate diverged: {', '.join(f'{rate:g}' for rate in scores[0])}. "
            "Add smaller ones to --rates."
        )
    return min(means, key=lambda rate: (-means[rate], rate))


def development_splits(spec, train_split: str, share: float) -> tuple[str, str]:
    """Returns (train, development) parts of a training split.

    Where the data set has a development split of its own for the whole of `train_split`, as the
    paper's data sets and VTAB's tasks do, that one; otherwise the last part of `train_split`.

    Args:
        spec: `DatasetSpec` of the data set.
        train_split: what the final model is trained on.
        share: of the images, that the development split gets where it is cut here.
    """
    if spec.dev and train_split in ("train", "train800val200"):
        return spec.dev
    ranges = spec.ranges(train_split)
    size = sum(part.size for part in ranges)
    kept = size - max(1, round(share * size))
    if kept < 1:
        raise ValueError(
            f"Expected at least 2 images to split. Received: {train_split} with {size}"
        )
    first, second, seen = [], [], 0
    for part in ranges:
        boundary = min(max(kept - seen, 0), part.size) + part.start
        if boundary > part.start:
            first.append(f"{part.split}[{part.start}:{boundary}]")
        if boundary < part.stop:
            second.append(f"{part.split}[{boundary}:{part.stop}]")
        seen += part.size
    return "+".join(first), "+".join(second)


def train_run(config, workdir) -> RunResult:
    """Trains one run unless it has finished, and returns its scores.

    The scores are those that the trainer logs after the last step. Once they are in
    `result.json`, the run's checkpoints for resuming it are deleted; `model.keras` stays.

    Raises:
        UsageError: if `workdir` holds a run of another config.
    """
    import shutil

    import keras

    from training import config_keys
    from training.errors import Diverged, UsageError
    from training.loop.trainer import train

    workdir = pathlib.Path(workdir)
    wanted = json.loads(config_keys.to_json(config_keys.complete(config)))
    stored = _read_result(workdir)
    if stored is not None:
        changes = config_keys.differences(stored["config"], wanted)
        if changes:
            raise UsageError(
                f"{workdir} holds a run of another config ({'; '.join(changes)}). "
                "Use another --workdir."
            )
        return RunResult(**stored["result"])
    # The graphs of earlier runs in this process are of no more use.
    keras.utils.clear_session()
    try:
        train(config, workdir)
        result = _last_scores(workdir)
    except Diverged as error:
        result = RunResult(diverged=str(error))
    content = {"config": wanted, "result": dataclasses.asdict(result)}
    write_text(workdir / RESULT, json.dumps(content, indent=2, sort_keys=True) + "\n")
    shutil.rmtree(workdir / "checkpoints", ignore_errors=True)
    return result


def evaluate_also(config, workdir, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Scores the models of finished runs on further test sets of the same classes.

    Args:
        config: of the runs.
        workdir: that `transfer` was given.
        seeds: of the runs.

    Returns:
        {data set: top-1 accuracies in per cent, one per seed}, for those of `ALSO`.

    Raises:
        NotPreparedError: if one of them is not on disk.
    """
    from training.data import pipeline
    from training.evaluators import classification
    from training.io.model_source import load_model

    accuracies = {}
    for name in ALSO.get(config.dataset, ()):
        accuracies[name] = []
        for seed in seeds:
            run = pathlib.Path(workdir) / "test" / f"seed_{seed}"
            file = run / f"{name}.json"
            if not file.exists():
                batches = pipeline.eval_dataset(
                    name=name,
                    split="test",
                    preprocess=config.eval_preprocess,
                    batch_size=config.eval_batch_size or config.batch_size,
                    data_dir=config.data_dir or None,
                )
                result = classification.evaluate(load_model(run).logits, batches)
                del result["confusion"]
                write_text(file, json.dumps(result, indent=2, sort_keys=True) + "\n")
            accuracies[name].append(100 * json.loads(file.read_text())["top1"])
    return accuracies


def summary(
    found: Transfer,
    published: Sequence[tuple[str, str]] = (),
    also: Mapping[str, Sequence[float]] | None = None,
) -> Table:
    """Returns the table of a sweep: rates, seeds, mean and standard deviation.

    Args:
        found: what `transfer` returned.
        published: (where, result) of the paper for the same model and data set.
        also: what `evaluate_also` returned.
    """
    rows = [
        (
            "development",
            f"rate {rate:g}" + (" (chosen)" if rate == found.rate else ""),
            "diverged" if result.diverged else f"{100 * result.top1:.2f}",
            result.count,
        )
        for rate, result in found.development.items()
    ]
    rows += [
        ("test", f"rate {found.rate:g}, seed {seed}", f"{100 * result.top1:.2f}", result.count)
        for seed, result in found.test.items()
    ]
    rows.append(("test", f"mean of {len(found.test)}", mean_and_deviation(found.accuracies), ""))
    for name, accuracies in (also or {}).items():
        rows.append((name, f"mean of {len(accuracies)}", mean_and_deviation(accuracies), ""))
    rows += [("paper", where, result, "") for where, result in published]
    return Table(("split", "run", "top-1 %", "images"), rows, f"Fine-tuning on {found.dataset}")


def mean_and_deviation(accuracies: Sequence[float]) -> str:
    """Returns "mean ± sample standard deviation" of accuracies in per cent."""
    deviation = f" ± {np.std(accuracies, ddof=1):.2f}" if len(accuracies) > 1 else ""
    return f"{np.mean(accuracies):.2f}{deviation}"


def write(found: Transfer, table: Table, workdir) -> None:
    """Writes `sweep.md`, `sweep.csv` and `sweep.png` into `workdir`."""
    workdir = pathlib.Path(workdir)
    write_text(workdir / "sweep.md", table.markdown())
    write_text(workdir / "sweep.csv", table.csv())
    plot(found, workdir / "sweep.png")


def plot(found: Transfer, path) -> None:
    """Draws development accuracy over the learning rate, and the test accuracies at the chosen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    finished = sorted(
        (rate, 100 * result.top1) for rate, result in found.development.items() if result.count
    )
    if finished:
        axes.plot(*zip(*finished, strict=True), "o-", label="development")
    accuracies = found.accuracies
    axes.errorbar(
        found.rate,
        np.mean(accuracies),
        yerr=np.std(accuracies, ddof=1) if len(accuracies) > 1 else None,
        fmt="s",
        capsize=4,
        label=f"test ({len(accuracies)} seeds)" if len(accuracies) > 1 else "test",
    )
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("top-1 accuracy, %")
    axes.set_title(found.dataset)
    axes.legend()
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    plt.close(figure)


def _changed(config, *, base_lr, seed=None, splits=None):
    changed = copy.deepcopy(config)
    changed.optimizer.base_lr = base_lr
    if seed is not None:
        changed.seed = seed
    if splits is not None:
        changed.train_split, changed.eval_split = splits
    return changed


def _describe(result):
    return f"diverged ({result.diverged})" if result.diverged else f"{100 * result.top1:.2f} %"


def _read_result(workdir):
    try:
        return json.loads((workdir / RESULT).read_text())
    except FileNotFoundError:
        return None


def _last_scores(workdir):
    with (workdir / "metrics.csv").open(newline="") as stream:
        last = list(csv.DictReader(stream))[-1]
    count = int(last["eval_count"])
    return RunResult(
        # The file rounds; the number of correct images is a whole one.
        top1=round(float(last["eval_top1"]) * count) / count,
        top5=round(float(last["eval_top5"]) * count) / count,
        loss=float(last["eval_loss"]),
        count=count,
    )
