"""VTAB-1k: training the 19 tasks, one sweep each, and their score (Table 9, Figure 2).

The score is the plain mean over tasks, not the mean of the means of the three groups.
"""

import logging
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from ..data import Dataset
from ..io.atomic import write_text
from ..io.printed_table import Table
from ..paper_tables import TABLE_2, TABLE_9, VTAB_GROUPS, VTAB_TASKS, MeanDeviation, VtabTask
from ..reporting.matplotlib_figures import new_figure, write_png
from .learning_rate_sweep import choose_rate, score_rates, transfer
from .train_unless_finished import same_weights

logger = logging.getLogger("keras_vit")

DEVELOPMENT = ("train800", "val200")
ALL = "VTAB (19 tasks)"
_GROUPS = {**VTAB_GROUPS, ALL: VTAB_TASKS}
_UPSTREAM = {"jft": "JFT", "imagenet21k": "I21k"}
# {"ViT-H/14 (JFT)": {task: [its accuracy]}}, as of one run.
_PUBLISHED: dict[str, dict[str, Sequence[float]]] = {
    f"{model} ({_UPSTREAM[upstream]})": {task: [accuracy] for task, accuracy in row.items()}
    for (model, upstream), row in TABLE_9.items()
}


def aggregate(accuracies: Mapping[str, Sequence[float]]) -> dict[str, MeanDeviation]:
    """Returns {"Natural", "Specialized", "Structured", "VTAB (19 tasks)": mean over the tasks}.

    With the deviation of that mean over runs; without the groups of which no task has a result.
    `accuracies` has for each task, by the paper's name, the accuracies in percent of its runs; the
    same number of runs for every task. Tasks may be absent.
    """
    present = {
        group: [accuracies[task] for task in tasks if task in accuracies]
        for group, tasks in _GROUPS.items()
    }
    return {
        group: MeanDeviation.of(np.mean(found, axis=0)) for group, found in present.items() if found
    }


def _mean_of(group, accuracies):
    """Returns the text of a group's mean, with how many of its tasks that is if not all."""
    means, tasks = aggregate(accuracies), _GROUPS[group]
    present = sum(task in accuracies for task in tasks)
    share = "" if present == len(tasks) else f" ({present} of {len(tasks)})"
    return f"{means[group]}{share}" if present else "–"


def comparison(name: str, accuracies: Mapping[str, Sequence[float]]) -> Table:
    """Returns the accuracies of a model, task by task, beside the three rows of Table 9.

    `accuracies` are as for `aggregate`; an absent task is shown as "–".
    """
    rows = []
    for group, tasks in VTAB_GROUPS.items():
        for task in tasks:
            ours = str(MeanDeviation.of(accuracies[task])) if task in accuracies else "–"
            rows.append((task, ours, *(f"{row[task][0]:.1f}" for row in _PUBLISHED.values())))
        cells = (_mean_of(group, row) for row in (accuracies, *_PUBLISHED.values()))
        rows.append((f"{group} mean", *cells))
    # Table 2 has more digits and a deviation.
    table_2 = (str(TABLE_2[key]["vtab"]) for key in TABLE_9)
    rows.append((ALL, _mean_of(ALL, accuracies), *table_2))
    return Table(("task", name, *_PUBLISHED), rows, "VTAB-1k: top-1 accuracy, %")


def group_figure(name: str, accuracies: Mapping[str, Sequence[float]]) -> Figure:
    """Draws the means of the groups beside the paper's, as Figure 2 does."""
    models = {name: accuracies, **_PUBLISHED}
    figure, (axes,) = new_figure(width=7)
    width = 0.8 / len(models)
    for i, (label, row) in enumerate(models.items()):
        places = np.arange(len(_GROUPS)) + (i - (len(models) - 1) / 2) * width
        means = aggregate(row)
        heights = [means[group].mean if group in means else 0 for group in _GROUPS]
        bars = axes.bar(places, heights, width, label=label)
        for bar, tasks in zip(bars, _GROUPS.values(), strict=True):
            # A group with tasks missing is not comparable.
            bar.set_alpha(1.0 if row.keys() >= set(tasks) else 0.4)
    axes.set_xticks(np.arange(len(_GROUPS)), list(_GROUPS))
    axes.set(ylabel="top-1 accuracy, %", ylim=(0, 100))
    # Above the axes, since every place in them is a bar's.
    figure.legend(fontsize="small", ncols=2, loc="outside upper center")
    return figure


def run(
    tasks: Sequence[tuple[VtabTask, ConfigDict, Dataset]],
    workdir: pathlib.Path,
    *,
    name: str,
    rates: Sequence[float],
    seeds: Sequence[int],
    one_rate: bool = False,
) -> Table:
    """Trains and scores the tasks that are left, and returns the table of all.

    `vtab.md`, `vtab.csv` and `vtab.png` are written anew after every task. Each task comes with the
    config of its final runs and its open data set, and gets a directory in `workdir`. Several
    `rates` are chosen from on the tasks' development splits; with `one_rate` all tasks are given
    the rate that is best on average.
    """
    found = {}
    with same_weights(tasks[0][1].checkpoint):
        if one_rate and len(rates) > 1:
            scores = [
                score_rates(config, workdir / task.name, dataset, rates, DEVELOPMENT)
                for task, config, dataset in tasks
            ]
            rates = [choose_rate(scores)]
            logger.info("All tasks: rate %g", rates[0])
        for number, (task, config, dataset) in enumerate(tasks, 1):
            logger.info("Task %d of %d: %s", number, len(tasks), task.title)
            folder, train = workdir / task.name, dataset.split(config.train_split)
            # They can differ between machines for the same slice.
            names = (train.example_id(index) for index in range(train.num_examples))
            write_text(folder / "examples.txt", "".join(f"{each}\n" for each in names))
            found[task.title] = transfer(
                config, folder, dataset, rates=rates, seeds=seeds, development=DEVELOPMENT
            )
            table = _write_results(name, found, workdir)
    return table


def _write_results(name, found, workdir):
    """Writes `vtab.md`, `vtab.csv` and `vtab.png` of the tasks that are done; returns the table."""
    accuracies = {title: of_task.accuracies for title, of_task in found.items()}
    table = comparison(name, accuracies)
    rows = [
        (title, of_task.rate, seed, result.score, result.count)
        for title, of_task in found.items()
        for seed, result in of_task.test.items()
    ]
    write_text(workdir / "vtab.md", table.markdown())
    columns = ("task", "rate", "seed", "accuracy", "images")
    write_text(workdir / "vtab.csv", Table(columns, rows).csv())
    write_png(group_figure(name, accuracies), workdir / "vtab.png")
    return table
