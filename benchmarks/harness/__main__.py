"""The answering end of a measured process: `python -m benchmarks.harness FUNCTION TASK THREADS`.

FUNCTION, "MODULE:FUNCTION", gets the JSON object TASK as keyword arguments and returns (facts,
measure). The facts are printed as a line of JSON; then every line of JSON on standard input is
passed to `measure`, whose answer is printed. All else that is printed goes to standard error.
"""

import ctypes
import importlib
import json
import os
import signal
import sys

from benchmarks.harness.machine import peak_memory

_PR_SET_PDEATHSIG = 1


def pin(threads: int) -> None:
    """Restricts this process, and every thread pool it will make, to `threads` cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"


def main(name: str, task: str, threads: str) -> None:
    """Calls the function that `name` names and answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if sys.platform == "linux":
        # A stopped process would otherwise outlive a parent that was killed.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if int(threads):
        pin(int(threads))
    module, _, function = name.partition(":")
    facts, measure = getattr(importlib.import_module(module), function)(**json.loads(task))
    print(json.dumps({**facts, "memory": peak_memory()}), file=answers)
    for line in sys.stdin:
        answer = measure(**json.loads(line))
        print(json.dumps({**answer, "memory": peak_memory()}), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
