"""The VTAB-1k score of a model from its accuracies on the 19 tasks (Table 9).

The score is the plain mean over tasks, not the mean of the means of the three groups.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from training.data.vtab_tasks import TASKS, VtabTask
from training.io.atomic import whole_file, write_text
from training.paper import TABLE_2, TABLE_9, VTAB_GROUPS, VTAB_TASKS
from training.protocols import sweep
from training.protocols.sweep import mean_and_deviation
from training.reporting.table import Table

ALL = "VTAB (19 tasks)"
_UPSTREAM = {"jft": "JFT", "imagenet21k": "I21k"}


class Mean(NamedTuple):
    """The mean of some tasks, in per cent.

    Attributes:
        mean: over the tasks that have a result; None if none has.
        deviation: sample standard deviation of that mean over runs; None with less than two runs.
        present: tasks that have a result.
        expected: tasks that belong to the group.
    """

    mean: float | None
    deviation: float | None
    present: int
    expected: int

    def __str__(self):
        if self.mean is None:
            return "–"
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        share = "" if self.present == self.expected else f" ({self.present} of {self.expected})"
        return f"{self.mean:.2f}{deviation}{share}"


def aggregate(accuracies: Mapping[str, Sequence[float]]) -> dict[str, Mean]:
    """Returns the mean of each group of tasks and of all.

    Args:
        accuracies: for each task, by the paper's name, the accuracies in per cent of its runs; the
            same number of runs for every task. Tasks may be absent.

    Returns:
        {"Natural", "Specialized", "Structured", "VTAB (19 tasks)": mean}.
    """
    unknown = set(accuracies) - set(VTAB_TASKS)
    if unknown:
        raise ValueError(
            f"Expected tasks of VTAB: {', '.join(VTAB_TASKS)}. Received: {', '.join(unknown)}"
        )
    if len({len(runs) for runs in accuracies.values()}) > 1:
        counts = ", ".join(f"{task}: {len(runs)}" for task, runs in accuracies.items())
        raise ValueError(f"Expected the same number of runs for every task. Received: {counts}")

    means = {}
    for group, tasks in {**VTAB_GROUPS, ALL: VTAB_TASKS}.items():
        present = [accuracies[task] for task in tasks if task in accuracies]
        of_runs = np.mean(present, axis=0) if present else np.array([])
        means[group] = Mean(
            float(of_runs.mean()) if of_runs.size else None,
            float(of_runs.std(ddof=1)) if of_runs.size > 1 else None,
            len(present),
            len(tasks),
        )
    return means


def comparison(name: str, accuracies: Mapping[str, Sequence[float]]) -> Table:
    """Returns the accuracies of a model, task by task, beside the three rows of Table 9.

    Args:
        name: of the model.
        accuracies: as for `aggregate`; an absent task is shown as "–".
    """
    means = aggregate(accuracies)
    columns = [f"{model} ({_UPSTREAM[upstream]})" for model, upstream in TABLE_9]
    published = [{task: [accuracy] for task, accuracy in row.items()} for row in TABLE_9.values()]
    rows = []
    for group, tasks in VTAB_GROUPS.items():
        for task in tasks:
            ours = mean_and_deviation(accuracies[task]) if task in accuracies else "–"
            rows.append((task, ours, *(f"{row[task][0]:.1f}" for row in published)))
        rows.append((f"{group} mean", str(means[group]), *_published_means(published, group)))
    rows.append((ALL, str(means[ALL]), *_published_means(published, ALL)))
    return Table(("task", name, *columns), rows, "VTAB-1k: top-1 accuracy, %")


def choose_tasks(names: Sequence[str] | None = None) -> list[VtabTask]:
    """Returns the tasks of these names, by the registry's or the paper's, in Table 9's order.

    Raises:
        ValueError: for a name that is neither.
    """
    if names is None:
        return list(TASKS)
    known = {name for task in TASKS for name in (task.name, task.title)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"Expected names of VTAB tasks: {', '.join(task.name for task in TASKS)}. "
            f"Received: {', '.join(unknown)}"
        )
    return [task for task in TASKS if {task.name, task.title} & set(names)]


def missing(tasks: Sequence[VtabTask], data_dir: str) -> dict[str, str]:
    """Returns {title: how to get its data} of the tasks whose data is not in `data_dir`."""
    from training.data import datasets, prepared

    found = {}
    for task in tasks:
        try:
            datasets.locate(datasets.get(f"vtab/{task.name}"), data_dir or None)
        except prepared.NotPreparedError as error:
            found[task.title] = f"{task.title}: {error}"
    return found


def run(
    tasks: Sequence[tuple[VtabTask, object]],
    workdir,
    *,
    name: str,
    rates: Sequence[float],
    seeds: Sequence[int],
    one_rate: bool = False,
) -> Table:
    """Trains and scores the tasks, or what is left of them, and returns the table of all.

    `vtab.md`, `vtab.csv` and `vtab.png` are written anew after every task.

    Args:
        tasks: pairs of a task and the config of its final runs.
        workdir: gets a directory for each task.
        name: of the model.
        rates: one learning rate, or several to choose from on the tasks' development splits.
        seeds: of the final runs.
        one_rate: whether all tasks are given the rate that is best on average.
    """
    workdir = pathlib.Path(workdir)
    development = ("train800", "val200")
    if one_rate and len(rates) > 1:
        scores = [
            sweep.score_rates(config, workdir / task.name, rates, development)
            for task, config in tasks
        ]
        rates = [sweep.choose_rate(scores)]
        print(f"All tasks: rate {rates[0]:g}")
    found = {}
    for task, config in tasks:
        _write_example_names(config, workdir / task.name / "examples.txt")
        found[task.title] = sweep.transfer(
            config, workdir / task.name, rates=rates, seeds=seeds, development=development
        )
        table = write(name, found, workdir)
    return table


def write(name: str, found: Mapping[str, sweep.Transfer], workdir) -> Table:
    """Writes `vtab.md`, `vtab.csv` and `vtab.png` of the tasks that are done; returns the table."""
    workdir = pathlib.Path(workdir)
    accuracies = {title: transfer.accuracies for title, transfer in found.items()}
    table = comparison(name, accuracies)
    rows = [
        (title, transfer.rate, seed, result.top1, result.count)
        for title, transfer in found.items()
        for seed, result in transfer.test.items()
    ]
    write_text(workdir / "vtab.md", table.markdown())
    write_text(workdir / "vtab.csv", Table(("task", "rate", "seed", "top1", "images"), rows).csv())
    plot(name, accuracies, workdir / "vtab.png")
    return table


def plot(name: str, accuracies: Mapping[str, Sequence[float]], path) -> None:
    """Draws the means of the groups beside the paper's, as Figure 2 does."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    models = {name: aggregate(accuracies)}
    for (model, upstream), row in TABLE_9.items():
        models[f"{model} ({_UPSTREAM[upstream]})"] = aggregate({t: [a] for t, a in row.items()})
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    width = 0.8 / len(models)
    for i, (label, means) in enumerate(models.items()):
        places = np.arange(len(means)) + (i - (len(models) - 1) / 2) * width
        heights = [mean.mean or 0 for mean in means.values()]
        bars = axes.bar(places, heights, width, label=label)
        complete = [mean.present == mean.expected for mean in means.values()]
        for bar, is_complete in zip(bars, complete, strict=True):
            # A group with tasks missing is not comparable.
            bar.set_alpha(1.0 if is_complete else 0.4)
    axes.set_xticks(np.arange(len(means)), list(means))
    axes.set_ylabel("top-1 accuracy, %")
    axes.set_ylim(0, 100)
    axes.legend(fontsize="small", loc="lower left")
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    plt.close(figure)


def _write_example_names(config, path):
    """The names that TFDS gives the training examples, since membership can differ by machine."""
    from training.data import random_access

    source = random_access.open_source(config.dataset, config.train_split, config.data_dir or None)
    names = [source.example_id(index) for index in range(source.num_examples)]
    write_text(path, "".join(f"{name}\n" for name in names))


def _published_means(published, group):
    """Table 2's figures for all tasks, which have more digits and a deviation; else Table 9's."""
    if group == ALL:
        return [
            f"{mean:.2f} ± {deviation:.2f}"
            for mean, deviation in (TABLE_2[key]["vtab"] for key in TABLE_9)
        ]
    return [str(aggregate(row)[group]) for row in published]
