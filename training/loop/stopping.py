"""Stops a run before its last step: on request, or when its evaluations get no better."""

import signal
import threading
from collections.abc import Mapping

import numpy as np

from keras_vit.training.evaluators.classification import sign_of


class StopRequest:
    """A context: SIGTERM and the first SIGINT set `received`, a second SIGINT interrupts.

    Attributes:
        received: number of the signal; 0 before one.
    """

    def __init__(self):
        self.received = 0
        self._before = {}

    def __enter__(self):
        # Python allows handlers in its main thread only.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                # A shell has its background jobs ignore Ctrl-C.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        self.received = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])


class BestEvaluation:
    """Compares the evaluations of a run by one metric, and by the loss where it is equal.

    Args:
        metric: `"eval_loss"`, of which less is better, or an accuracy.
        patience: evaluations without a better one after which the run is over; 0 never ends it.
    """

    def __init__(self, metric: str, patience: int = 0):
        self.metric, self.patience = metric, patience
        self._sign = sign_of(metric)

    @staticmethod
    def start() -> dict[str, np.ndarray]:
        """Returns the numbers of a run without evaluations, which are saved with its state."""
        names = {"best": -np.inf, "best_loss": np.inf, "best_step": 0.0}
        names |= {"last": np.nan, "stale": 0.0}
        return {name: np.array(value) for name, value in names.items()}

    def update(
        self, numbers: dict[str, np.ndarray], values: Mapping[str, float], step: int
    ) -> bool:
        """Counts an evaluation after `step` updates, and returns whether it is the best so far.

        Args:
            numbers: of `start`, changed in place: `best` and `last`, the metric where more is
                better, `best_loss`, `best_step`, and `stale`, the evaluations since.
            values: {name of a metric: value}; nothing is counted without `metric` among them.
        """
        if self.metric not in values:
            return False
        score, loss = self._sign * values[self.metric], values["eval_loss"]
        better = (score, -loss) > (float(numbers["best"]), -float(numbers["best_loss"]))
        numbers["last"] = np.array(score)
        if better:
            found = {"best": score, "best_loss": loss, "best_step": float(step)}
            numbers |= {name: np.array(value) for name, value in found.items()}
        numbers["stale"] = np.array(0.0 if better else numbers["stale"] + 1.0)
        return better

    def shown(self, numbers: Mapping[str, np.ndarray], name: str) -> str:
        """Returns `"best"` or `"last"` of the numbers as text, such as "eval_top1 63.64 %"."""
        value = self._sign * float(numbers[name])
        text = f"{value:.4g}" if self.metric == "eval_loss" else f"{100 * value:.2f} %"
        return f"{self.metric} {text}"

    def is_over(self, numbers: Mapping[str, np.ndarray]) -> bool:
        """Whether the run is to end before its last step."""
        return bool(self.patience and numbers["stale"] >= self.patience)
