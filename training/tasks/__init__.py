"""The table of tasks that a run can learn."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from .base import COUNT, COUNTED, LOSS, Metric, Task
from .classification import Classification
from .masked_patches import MaskedPatches
from .numbers import Numbers
from .segmentation import Segmentation
from .several_labels import SeveralLabels

__all__ = [
    "COUNT",
    "COUNTED",
    "LOSS",
    "METRICS",
    "TASKS",
    "Metric",
    "Task",
    "compared_by",
    "task_of",
]

# The first is that of a config which chooses none.
TASKS: tuple[Task, ...] = (
    Classification(),
    MaskedPatches(),
    Segmentation(),
    SeveralLabels(),
    Numbers(),
)
# {column: metric} of the evaluations of all tasks.
METRICS = {each.column: each for task in TASKS for each in task.metrics} | {LOSS.column: LOSS}


def task_of(config: ConfigDict | Mapping[str, Any], classifies: str = "image") -> Task:
    """Returns the task of a run, of its config or `config.json`.

    `classifies` is that of the output of a model, where it is known.
    """
    for task in TASKS:
        section, _, key = task.chosen_by.partition(".")
        chosen = section and config.get(section, {}).get(key)
        if chosen or classifies == task.classifies != TASKS[0].classifies:
            return task
    return TASKS[0]


def compared_by(config: ConfigDict | Mapping[str, Any]) -> Metric:
    """Returns the metric that says which evaluation of a run is better; `config` as `task_of`."""
    return METRICS.get(config["early_stopping"]["metric"]) or task_of(config).main
