"""Interleaved rounds: every contestant once per round, the others stopped."""

import contextlib
import random
import statistics

from benchmarks.harness.library_process import Contestant


class Result:
    """What one contestant showed.

    Attributes:
        case: its `Case`.
        facts: dict, what it said of itself.
        rounds: list of float, the median seconds per step of each round.
        memory: int, the peak memory of its process, in bytes.
    """

    def __init__(self, case, facts):
        self.case = case
        self.facts = facts
        self.rounds = []
        self.memory = 0

    @property
    def seconds(self):
        """Median over rounds of the seconds per step."""
        return statistics.median(self.rounds)


def run(cases, rounds, seconds, bar):
    """Measures the cases against each other.

    Args:
        cases: list of `Case`.
        rounds: int. Each has an order of its own, so that no contestant always
            follows the same other one.
        seconds: float, for each contestant in each round.
        bar: a `benchmarks.harness.progress.Bar`.

    Returns:
        One `Result` per case.

    Raises:
        ContestantError: if a contestant's process ends.
    """
    order = random.Random(0)
    with contextlib.ExitStack() as processes:
        contestants, results = [], []
        for case in cases:
            bar.note(f"starting {case.contestant} {case.precision}")
            contestant = processes.enter_context(Contestant(case))
            contestants.append(contestant)
            results.append(Result(case, contestant.facts))
            bar.advance()
        pairs = list(zip(contestants, results, strict=True))
        for number in range(rounds):
            for contestant, result in order.sample(pairs, len(pairs)):
                bar.note(f"round {number + 1} of {rounds}: {result.case.contestant}")
                answer = contestant.measure(seconds)
                result.rounds.append(statistics.median(answer["times"]))
                result.memory = answer["memory"]
                bar.advance()
    return results


def ratio(result, reference):
    """Returns (median, lower quartile, upper quartile) of the rounds' paired ratios.

    Above 1, `result` took longer than `reference`. Pairs of the same round met the
    same machine, which medians of each alone did not.
    """
    paired = [a / b for a, b in zip(result.rounds, reference.rounds, strict=True)]
    if len(paired) == 1:
        return paired[0], paired[0], paired[0]
    lower, middle, upper = statistics.quantiles(paired, n=4, method="inclusive")
    return middle, lower, upper
