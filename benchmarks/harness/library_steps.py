"""Steps of libraries, each in a process of its own, timed in interleaved rounds."""

import contextlib
import dataclasses
import functools
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness import interleaved
from benchmarks.harness.case import Case
from benchmarks.harness.process import Process
from benchmarks.harness.progress import track

WARM_UP_STEPS = 2
LEAST_STEPS = 3


@dataclasses.dataclass
class Result:
    """What was measured of one case.

    Attributes:
        case: its `Case`.
        facts: what its library found out when it was ready.
        rounds: the median seconds per step of each round.
        memory: the peak memory of its process, in bytes.
    """

    case: Case
    facts: dict[str, Any]
    rounds: list[float]
    memory: int

    @property
    def seconds(self) -> float:
        """Median over rounds of the seconds per step."""
        return statistics.median(self.rounds)


def measure(cases: Sequence[Case], rounds: int, seconds: float, threads: int) -> list[Result]:
    """Measures the cases against each other, one running at a time.

    Args:
        cases: what to measure; all their processes are held at once.
        rounds: turns of each.
        seconds: length of a turn.
        threads: processor cores of each.

    Returns:
        One `Result` per case.

    Raises:
        ProcessError: if a library's process ends.
    """
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(start(case, threads))
            for case in track(cases, lambda case: f"starting {case.library}, {case.precision}")
        ]
        calls = {
            f"{number}, {case.library}": functools.partial(process.ask, seconds=seconds)
            for number, (case, process) in enumerate(zip(cases, processes, strict=True))
        }
        answers = interleaved.measure(calls, rounds)
        return [
            Result(
                case,
                process.facts,
                [statistics.median(turn["times"]) for turn in turns],
                turns[-1]["memory"],
            )
            for case, process, turns in zip(cases, processes, answers.values(), strict=True)
        ]


def start(case: Case, threads: int) -> Process:
    """Returns the process of a case, which answers `ask(seconds=…)` with the `times` of steps."""
    return Process(f"{__name__}:prepare", dataclasses.asdict(case), threads=threads)


def prepare(**case: Any) -> tuple[dict, Callable[[float], dict]]:
    """Builds a library's step and warms it up, in the process that will be asked."""
    module, _, function = case["library"].partition(".")
    library = importlib.import_module(f"benchmarks.libraries.{module}")
    step, facts = getattr(library, function or "prepare")(Case(**case))
    for _ in range(WARM_UP_STEPS):
        step()
    return facts, lambda seconds: {"times": _times(step, seconds)}


def _times(step, seconds):
    # The first run only brings caches and sleeping threads back.
    step()
    times, end = [], time.perf_counter() + seconds
    while len(times) < LEAST_STEPS or time.perf_counter() < end:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return times
