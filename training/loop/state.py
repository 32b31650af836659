"""The loop's state, which a checkpoint holds by name: sums, and the best evaluation so far."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.update import Report
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


class LoopState:
    """The numbers that go on with a run: `fingerprint.as_numbers` of its data, and evaluations."""

    def __init__(self, data: np.ndarray, best: BestEvaluation):
        self.data, self.best = data, best
        # Sums over the updates since the last row of metrics; "updates" is their number.
        self.sums = dict.fromkeys(("updates", "loss", "gradient_norm"), 0.0)

    def arrays(self) -> dict[str, Any]:
        """Returns {name: value} of all numbers, for a checkpoint."""
        named = {f"best/{name}": value for name, value in self.best.numbers.items()}
        return {"data": self.data, **{f"sums/{k}": v for k, v in self.sums.items()}, **named}

    def restore(self, arrays: Mapping[str, np.ndarray], evaluations: bool) -> None:
        """Takes the sums of `arrays`, and the best evaluation if `evaluations` still compare."""
        self.sums = {name: float(arrays[f"sums/{name}"]) for name in self.sums}
        for name in self.best.numbers if evaluations else ():
            setattr(self.best, name, float(arrays[f"best/{name}"]))

    def add(self, count: int, report: Report) -> None:
        """Adds the report on `count` updates to the sums."""
        added = {"updates": 1, "loss": report.loss, "gradient_norm": report.gradient_norm}
        self.sums = {name: self.sums[name] + count * added[name] for name in added}

    def take_means(self) -> tuple[float, float]:
        """Returns the means of loss and gradient norm, and begins new sums."""
        count, loss, norm = self.sums.values()
        self.sums = dict.fromkeys(self.sums, 0.0)
        return loss / count, norm / count
