"""Steps of libraries, each in a process of its own, timed in rounds."""

import contextlib
import dataclasses
import functools
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness import interleaved
from benchmarks.harness.process import Process, ProcessError
from benchmarks.libraries import Case
from keras_vit.training.io.progress_bar import track

WARM_UP_STEPS = 2
LEAST_STEPS = 3


@dataclasses.dataclass
class Result:
    """The measurements of one case.

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
    def per_image(self) -> list[float]:
        """The seconds per image of each round."""
        return [seconds / self.case.batch_size for seconds in self.rounds]


def measure(
    cases: Sequence[Case], rounds: int, seconds: float, threads: int, alone: bool = False
) -> list[Result]:
    """Measures the cases against each other, in interleaved rounds, one running at a time.

    Args:
        cases: what to measure; all their processes are held at once.
        rounds: turns of each.
        seconds: length of a turn.
        threads: processor cores of each.
        alone: end each process before the next one starts, for the memory of a GPU, which does
            not hold all of them. A case that takes more than that is named on standard error and
            left out.

    Raises:
        ProcessError: if a library's process ends.
    """
    if not alone:
        return _measure(cases, rounds, seconds, threads)
    results = []
    for case in cases:
        try:
            results += _measure([case], rounds, seconds, threads)
        except ProcessError as error:
            if not error.out_of_memory:
                raise
            print(f"{case}: out of memory", file=sys.stderr)
    return results


def _measure(cases, rounds, seconds, threads):
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                Process(f"{__name__}:prepare", dataclasses.asdict(case), threads=threads)
            )
            for case in track(cases, "starting")
        ]
        calls = {
            number: functools.partial(process.ask, seconds=seconds)
            for number, process in enumerate(processes)
        }
        turns = interleaved.measure(calls, rounds)
        return [
            Result(
                case,
                process.facts,
                [statistics.median(turn["times"]) for turn in turns[number]],
                turns[number][-1]["memory"],
            )
            for number, (case, process) in enumerate(zip(cases, processes, strict=True))
        ]


def prepare(**case: Any) -> tuple[dict, Callable[[float], dict]]:
    """Builds a library's step and warms it up, in the process that will be asked."""
    module, _, function = case["library"].partition(".")
    library = importlib.import_module(f"benchmarks.libraries.{module}")
    step, facts = getattr(library, function or "prepare")(Case(**case))
    for _ in range(WARM_UP_STEPS):
        step()

    def measure(seconds):
        # The first run only brings caches and sleeping threads back.
        step()
        times, end = [], time.perf_counter() + seconds
        while len(times) < LEAST_STEPS or time.perf_counter() < end:
            times.append(interleaved.seconds(step))
        return {"times": times}

    return facts, measure
