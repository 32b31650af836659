"""Steps of libraries, each in a process of its own, timed in rounds."""

import dataclasses
import importlib
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness import interleaved
from benchmarks.harness.process import ProcessError
from benchmarks.libraries import Case

WARM_UP_STEPS = 2


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
    results: list[Result] = []
    for group in [[case] for case in cases] if alone else [cases]:
        tasks = dict(enumerate(map(dataclasses.asdict, group)))
        try:
            found = interleaved.measure_processes(
                f"{__name__}:prepare", tasks, rounds, threads, length=seconds
            )
        except ProcessError as error:
            if not (alone and error.out_of_memory):
                raise
            print(f"{group[0]}: out of memory", file=sys.stderr)
            continue
        for case, (facts, answers) in zip(group, found.values(), strict=True):
            medians = [each["median"] for each in answers]
            results.append(Result(case, facts, medians, answers[-1]["memory"]))
    return results


def prepare(**case: Any) -> tuple[dict, Callable[[float], dict]]:
    """Builds a library's step and warms it up, in the process that will be asked."""
    module, _, function = case["library"].partition(".")
    library = importlib.import_module(f"benchmarks.libraries.{module}")
    step, facts = getattr(library, function or "prepare")(Case(**case))
    for _ in range(WARM_UP_STEPS):
        step()

    return facts, lambda length: {"median": statistics.median(interleaved.times(step, length))}
