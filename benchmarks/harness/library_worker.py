"""A contestant's process: builds its step once, then runs it whenever asked.

The parent writes one JSON request per line on standard input and reads one JSON
answer per line on what standard output was at the start. Everything that
frameworks print goes to standard error.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import time

from benchmarks.harness.case import Case

WARM_UP_STEPS = 2
_PR_SET_PDEATHSIG = 1


def _die_with_parent():
    # A paused process would otherwise outlive a parent that was killed.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def pin(threads):
    """Restricts this process, and every thread pool it will make, to `threads` cores."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[:threads]
        os.sched_setaffinity(0, cores)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"


def peak_memory():
    """The most memory that this process has held, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def timed(step, seconds, least=3):
    """Runs `step` for about `seconds`; returns the seconds of every run but the first.

    The first only brings caches and sleeping threads back.
    """
    step()
    times, end = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def main(text):
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _die_with_parent()
    case = Case.from_json(text)
    pin(case.threads)
    before = time.perf_counter()
    prepare = importlib.import_module(f"benchmarks.libraries.{case.contestant}").prepare
    step, facts = prepare(case)
    built = peak_memory()
    for _ in range(WARM_UP_STEPS):
        step()
    ready = {"preparation": time.perf_counter() - before, "built_memory": built, **facts}
    print(json.dumps(ready), file=answers)
    for line in sys.stdin:
        times = timed(step, **json.loads(line))
        print(json.dumps({"times": times, "memory": peak_memory()}), file=answers)


if __name__ == "__main__":
    main(sys.argv[1])
