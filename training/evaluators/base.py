"""The protocol of evaluators: what a trainer or a command measures of a model, and how often."""

from collections.abc import Iterator
from typing import Protocol

import keras
from ml_collections import ConfigDict

from training.data import Dataset
from training.data.unreadable_examples import SkipCounter
from training.engines.base import Engine


class Evaluator(Protocol):
    """Yields the values of some metrics for a model as it is at that moment.

    The constructor checks what `run` needs, at once and not in the middle of training. To add one,
    write its class in a file of its own here, with a `from_config`, and call that in
    `create_evaluators`.

    Attributes:
        names: of the metrics that `run` yields; columns of `metrics.csv`.
        every_steps: updates between runs of it; 0 runs it after the last update only.
        distributed: whether all processes of a job run it together, or the chief alone.
    """

    names: tuple[str, ...]
    every_steps: int
    distributed: bool

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields (name, value) pairs.

        Args:
            model: images to logits, with the weights to evaluate; the same object every time.
        """


def create_evaluators(
    config: ConfigDict,
    engine: Engine,
    loss: keras.losses.Loss,
    dataset: Dataset,
    skip_counter: SkipCounter,
) -> list[Evaluator]:
    """Returns the evaluators that a complete config asks for.

    Args:
        config: complete.
        engine: built.
        loss: that is evaluated along with the accuracies.
        dataset: `config.dataset`, open.
        skip_counter: counts the images that cannot be read.

    Raises:
        ValueError, UsageError: if one of them cannot work.
    """
    from training.evaluators.classification import ClassificationEvaluator
    from training.evaluators.few_shot import FewShotEvaluator

    found: list[Evaluator] = []
    if config.eval_split:
        split = dataset.split(config.eval_split)
        found.append(ClassificationEvaluator.from_config(config, engine, loss, split, skip_counter))
    if config.few_shot.datasets:
        found.append(FewShotEvaluator.from_config(config, dataset))
    return found
