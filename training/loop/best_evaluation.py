"""The best evaluation of a run, and early stopping where none is better for long."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from ..tasks import LOSS, Metric


@dataclasses.dataclass
class BestEvaluation:
    """Compares the evaluations of a run by one metric, and by the loss where it is equal."""

    metric: Metric
    patience: int = 0  # evaluations without a better one that end the run; 0 never ends it
    since: float = 0.0  # number of updates after which evaluations are compared
    score: float = -np.inf  # `metric.score` of the best evaluation
    loss: float = np.inf  # of the best evaluation
    step: float = 0.0  # number of updates before the best evaluation; 0 before any
    model: float = 0.0  # identifies its model, of `RunDirectory.identity_of`
    stale: float = 0.0  # number of evaluations since the best

    @property
    def numbers(self) -> dict[str, float]:
        """{name: value} of what changes while the run goes on, for a checkpoint."""
        fixed = ("metric", "patience")
        return {name: each for name, each in vars(self).items() if name not in fixed}

    def update(self, values: Mapping[str, float], step: int) -> bool:
        """Counts an evaluation after `step` updates, and returns whether it is the best so far.

        `values` are {name of a metric: value}; nothing is counted without `metric` among them.
        """
        if self.metric.column not in values:
            return False
        score, loss = self.metric.score(values[self.metric.column]), values[LOSS.column]
        better = (score, -loss) > (self.score, -self.loss)
        self.stale += 1
        if better:
            self.score, self.loss, self.step, self.stale = score, loss, step, 0
        return better

    def is_over(self) -> bool:
        """Whether the run is to end before its last step."""
        return bool(self.patience and self.stale >= self.patience)
