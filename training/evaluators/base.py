"""The protocol of evaluators: what a trainer or a command measures of a model, and how often."""

import functools
from collections.abc import Iterator, Sequence
from typing import Protocol

import keras
from ml_collections import ConfigDict

from ..data.run_data import RunData
from ..distillation import TeacherEvaluator, Teachers
from ..engine.engine_interface import Engine
from ..inference.image_function import KerasFunction
from ..tasks import COUNT, LOSS, task_of
from .few_shot import FewShotEvaluator, FewShotTask


class Evaluator(Protocol):
    """Yields the values of some metrics for a model as it is at that moment.

    The constructor checks what `run` needs, at once and not in the middle of training. To add one,
    write its class, and call it in `create_evaluators`.
    """

    names: tuple[str, ...]  # of the metrics that `run` yields; columns of `metrics.csv`
    every_steps: int  # updates between runs of it; 0 runs it after the last update only
    distributed: bool  # whether all processes of a job run it together, or the chief alone

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields (name, value) pairs of a model of images to logits, the same object every time."""


class SplitEvaluator:
    """Evaluates a run's task on `config.eval_split`, on the devices of an engine that is built."""

    distributed = True

    def __init__(self, config: ConfigDict, engine: Engine, data: RunData):
        self._task, self.every_steps = task_of(config), config.eval_every_steps
        self.names = (LOSS.column, *(each.column for each in self._task.metrics), COUNT)
        self._split_sums = engine.make_split_sums(
            self._task.batch_sums(config.loss), data.eval_batches, data.eval_preprocess.on_device
        )

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the metrics of the engine's `model`, equal in all processes."""
        for name, value in self._task.means(self._split_sums()).items():
            yield f"eval_{name}", value


class WholeSplitEvaluator:
    """Evaluates a run's task on all outputs of `config.eval_split` at once, on the chief."""

    distributed = False

    def __init__(self, config: ConfigDict, data: RunData):
        self._task, self.every_steps, self._data = task_of(config), config.eval_every_steps, data
        self.names = (LOSS.column, *(each.column for each in self._task.metrics), COUNT)
        # Kept, so that a model is traced once and not at every evaluation.
        self._function = functools.lru_cache(1)(KerasFunction)

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the metrics of `model` with the weights that it has at that moment."""
        data, prepare = self._data, self._data.eval_preprocess.on_device
        batches = ({**each, "image": prepare(each["image"])} for each in data.eval_batches(1, 0))
        source = self._function(model, identified=False)
        found = self._task.evaluate(source, batches, data.dataset, "").metrics
        for name, value in found.items():
            yield f"eval_{name}", value


def create_evaluators(
    config: ConfigDict,
    engine: Engine,
    data: RunData,
    few_shot_tasks: Sequence[FewShotTask],
    teachers: Teachers,
) -> list[Evaluator]:
    """Returns the evaluators that a complete config asks for; the engine is built.

    `few_shot_tasks` are the data sets of `config.few_shot`. Raises ValueError or UsageError for an
    evaluator that cannot work.
    """
    found: list[Evaluator] = []
    if config.eval_split and task_of(config).of_whole_split:
        found.append(WholeSplitEvaluator(config, data))
    elif config.eval_split:
        found.append(SplitEvaluator(config, engine, data))
    if config.eval_split and teachers.give_logits:
        found.append(TeacherEvaluator(teachers, config, engine, data))
    if few_shot_tasks:
        names = ("every_steps", "shots", "neighbors", "probe")
        settings = {name: config.few_shot[name] for name in names}
        found.append(FewShotEvaluator(few_shot_tasks, **settings))
    return found
