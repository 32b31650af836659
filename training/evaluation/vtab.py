"""The VTAB-1k score of a model from its accuracies on the 19 tasks (Table 9).

The score is the plain mean over tasks, not the mean of the means of the three groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from training.evaluation.published import (
    TABLE_2,
    TABLE_9,
    VTAB_GROUPS,
    VTAB_TASKS,
)
from training.evaluation.sweep import mean_and_deviation
from training.evaluation.table import Table

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


def _published_means(published, group):
    """Table 2's figures for all tasks, which have more digits and a deviation; else Table 9's."""
    if group == ALL:
        return [
            f"{mean:.2f} ± {deviation:.2f}"
            for mean, deviation in (TABLE_2[key]["vtab"] for key in TABLE_9)
        ]
    return [str(aggregate(row)[group]) for row in published]
