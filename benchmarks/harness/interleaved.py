"""Measures in interleaved rounds, and compares by the medians of ratios within a round."""

import contextlib
import functools
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from benchmarks.harness.process import Process, ProcessError
from keras_vit.training.io.progress_bar import track

Item = TypeVar("Item")
Value = TypeVar("Value")


def measure(calls: Mapping[Item, Callable[[], Value]], rounds: int) -> dict[Item, list[Value]]:
    """Calls every function once per round and returns what each returned, round by round.

    Each round has another order, so that no function always follows the same one.
    """
    order = random.Random(0)
    turns = [key for _ in range(rounds) for key in order.sample(list(calls), len(calls))]
    values: dict[Item, list[Value]] = {key: [] for key in calls}
    for key in track(turns, f"measuring, {rounds} rounds"):
        values[key].append(calls[key]())
    return values


def measure_processes(
    function: str,
    tasks: Mapping[Item, dict[str, Any]],
    rounds: int,
    threads: int,
    seconds: float,
    together: bool = False,
    environment: Mapping[str, str] | None = None,
) -> dict[Item, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Starts a `Process` for every task, and measures them in turns, one running at a time.

    Each has `rounds` turns of so many `seconds` and `threads` processor cores, 0 for all. Returns
    the facts of each, and its answers, round by round. Raises `ProcessError` if one ends. They
    start one after the other, or `together`: one that ends then is named and left out.
    """
    start = functools.partial(Process, function, threads=threads, environment=environment)
    processes: dict[Item, Process] = {}
    with contextlib.ExitStack() as stack:
        # A process ends with the thread that started it: that lives until all are measured.
        pool = stack.enter_context(ThreadPoolExecutor(len(tasks) if together else 1))
        started = {key: pool.submit(start, task) for key, task in tasks.items()}
        for key, future in track(started.items(), "starting"):
            try:
                processes[key] = stack.enter_context(future.result())
            except ProcessError as error:
                if not together:
                    pool.shutdown(cancel_futures=True)
                    raise
                reason = "out of memory" if error.out_of_memory else error
                print(f"{key} is left out: {reason}", file=sys.stderr)
        calls = {
            key: functools.partial(each.ask, length=seconds) for key, each in processes.items()
        }
        answers = measure(calls, rounds)
        return {key: (process.facts, answers[key]) for key, process in processes.items()}


def median_time(call: Callable[[], object], length: float) -> dict[str, float]:
    """Returns the `median` time of the calls that fill so many seconds, three at least."""
    # The first one only brings caches and sleeping threads back.
    call()
    found: list[float] = []
    end = time.perf_counter() + length
    while len(found) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return {"median": statistics.median(found)}


def ratio(values: Sequence[float], reference: Sequence[float]) -> tuple[str, str]:
    """Returns the median and the quartiles of the ratios of two lists of the same rounds.

    Pairs of the same round met the same machine, which medians of each alone did not.
    """
    paired = [a / b for a, b in zip(values, reference, strict=True)]
    if len(paired) == 1:
        paired *= 2
    lower, middle, upper = statistics.quantiles(paired, n=4, method="inclusive")
    return f"{middle:.2f}", f"{lower:.2f} to {upper:.2f}"
