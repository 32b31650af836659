"""Stops a run before its last step: on request, or when its evaluations get no better."""

import signal
import threading
from collections.abc import Mapping

import numpy as np

from ..evaluators.classification import sign_of


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
        state: of a run that is resumed; None is one without evaluations that compare.
        since: number of updates done, without a state.

    Attributes:
        step: number of updates before the best evaluation; 0 before any.
        model: identifies the model of that evaluation, of `RunDirectory.identity_of`.
        since: number of updates after which evaluations are compared.
    """

    def __init__(
        self, metric: str, patience: int = 0, state: np.ndarray | None = None, since: int = 0
    ):
        self.metric, self.patience = metric, patience
        self._sign = sign_of(metric)
        start = [-np.inf, np.inf, 0.0, 0.0, np.nan, since, 0.0]
        values: list[float] = start if state is None else state.tolist()
        self._score, self._loss, self.step, self._stale, self._last, self.since, self.model = values

    @property
    def state(self) -> np.ndarray:
        """Float64 (7,) of the best evaluation, those since and the last, for a checkpoint."""
        best = self._score, self._loss, self.step
        return np.array([*best, self._stale, self._last, self.since, self.model])

    def update(self, values: Mapping[str, float], step: int) -> bool:
        """Counts an evaluation after `step` updates, and returns whether it is the best so far.

        `values` are {name of a metric: value}; nothing is counted without `metric` among them.
        """
        if self.metric not in values:
            return False
        score, loss = self._sign * values[self.metric], values["eval_loss"]
        better = (score, -loss) > (self._score, -self._loss)
        self._last = score
        self._stale += 1
        if better:
            self._score, self._loss, self.step, self._stale = score, loss, step, 0
        return better

    def is_over(self) -> bool:
        """Whether the run is to end before its last step."""
        return bool(self.patience and self._stale >= self.patience)

    def __str__(self) -> str:
        shown = []
        for score in (self._last, self._score):
            value = self._sign * score
            text = f"{value:.4g}" if self.metric == "eval_loss" else f"{100 * value:.2f} %"
            shown.append(f"{self.metric} {text}")
        return f"Last evaluation, {shown[0]}; best evaluation, at step {self.step:.0f}, {shown[1]}"
