"""Training and scoring the 19 tasks of VTAB-1k, one sweep each."""

import logging
import pathlib
from collections.abc import Mapping, Sequence

from ml_collections import ConfigDict

from training.data import Dataset, open_dataset
from training.data.tfds_folder import NotPreparedError
from training.data.vtab_tasks import TASKS, VtabTask
from training.io.atomic import write_text
from training.protocols.learning_rate_sweep import Transfer, choose_rate, score_rates, transfer
from training.reporting.table import Table

logger = logging.getLogger("training")

DEVELOPMENT = ("train800", "val200")


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


def open_tasks(
    tasks: Sequence[tuple[VtabTask, ConfigDict]],
) -> tuple[list[tuple[VtabTask, ConfigDict, Dataset]], dict[str, str]]:
    """Returns the tasks with their data sets, and {title: how to get it} of those without data.

    Args:
        tasks: pairs of a task and the config of its final runs.
    """
    opened, missing = [], {}
    for task, config in tasks:
        try:
            opened.append((task, config, open_dataset(config.dataset, config.data_dir or None)))
        except NotPreparedError as error:
            missing[task.title] = f"{task.title}: {error}"
    return opened, missing


def run(
    tasks: Sequence[tuple[VtabTask, ConfigDict, Dataset]],
    workdir: pathlib.Path,
    *,
    name: str,
    rates: Sequence[float],
    seeds: Sequence[int],
    one_rate: bool = False,
) -> Table:
    """Trains and scores the tasks, or what is left of them, and returns the table of all.

    `vtab.md`, `vtab.csv` and `vtab.png` are written anew after every task.

    Args:
        tasks: of `open_tasks`.
        workdir: gets a directory for each task.
        name: of the model.
        rates: one learning rate, or several to choose from on the tasks' development splits.
        seeds: of the final runs.
        one_rate: whether all tasks are given the rate that is best on average.
    """
    if one_rate and len(rates) > 1:
        scores = [
            score_rates(config, workdir / task.name, dataset, rates, DEVELOPMENT)
            for task, config, dataset in tasks
        ]
        rates = [choose_rate(scores)]
        logger.info("All tasks: rate %g", rates[0])
    found = {}
    for number, (task, config, dataset) in enumerate(tasks, 1):
        logger.info("Task %d of %d: %s", number, len(tasks), task.title)
        train = dataset.split(config.train_split)
        # Which they are can differ between machines.
        names = (train.example_id(index) for index in range(train.num_examples))
        write_text(workdir / task.name / "examples.txt", "".join(f"{each}\n" for each in names))
        found[task.title] = transfer(
            config, workdir / task.name, dataset, rates=rates, seeds=seeds, development=DEVELOPMENT
        )
        table = write(name, found, workdir)
    return table


def write(name: str, found: Mapping[str, Transfer], workdir: pathlib.Path) -> Table:
    """Writes `vtab.md`, `vtab.csv` and `vtab.png` of the tasks that are done; returns the table."""
    from training.protocols import vtab_score
    from training.reporting.png_figure import write_png

    accuracies = {title: of_task.accuracies for title, of_task in found.items()}
    table = vtab_score.comparison(name, accuracies)
    rows = [
        (title, of_task.rate, seed, result.top1, result.count)
        for title, of_task in found.items()
        for seed, result in of_task.test.items()
    ]
    write_text(workdir / "vtab.md", table.markdown())
    write_text(workdir / "vtab.csv", Table(("task", "rate", "seed", "top1", "images"), rows).csv())
    write_png(vtab_score.group_figure(name, accuracies), workdir / "vtab.png")
    return table
