"""Measured processes, and the memory that a process takes.

`python -m benchmarks.harness.process FUNCTION TASK THREADS` is the answering end of one. FUNCTION,
"MODULE:FUNCTION", gets the JSON object TASK as keyword arguments and returns (facts, measure). The
facts are printed as a line of JSON; then every line of JSON on standard input is passed to
`measure`, whose answer is printed. All else that is printed goes to standard error.
"""

import contextlib
import ctypes
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from keras_vit.export.verification.subprocesses import peak_memory
from keras_vit.training.errors import TrainingError

# A process that asks for too much is killed, by us or the system, or aborted by malloc.
_OUT_OF_MEMORY = (-signal.SIGKILL, -signal.SIGABRT)
# The messages of JAX, TensorFlow, PyTorch and NumPy when memory ends.
_MESSAGES = ("RESOURCE_EXHAUSTED", "ResourceExhaustedError", "OutOfMemoryError", "MemoryError")
_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
_PR_SET_PDEATHSIG = 1


class ProcessError(TrainingError):
    """A measured process ended before it answered, perhaps as it took too much memory."""

    def __init__(self, message: str, out_of_memory: bool) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory


class Process(contextlib.AbstractContextManager):
    """A process that prepares a measurement once, measures when asked, and is stopped otherwise.

    Args:
        function: "MODULE:FUNCTION", which is called with `task` and returns (facts, measure): a
            dict, which becomes `facts` with the `memory` in bytes, and a function of `ask`'s
            arguments that returns a dict.
        task: keyword arguments that JSON can hold.
        threads: processor cores that the process may use; 0: all.
        memory: bytes that the process may hold before it is killed; 0: no limit.
        environment: variables beside those of this process.

    Raises:
        ProcessError: if the process ends before it is ready.
    """

    def __init__(
        self,
        function: str,
        task: dict[str, Any],
        *,
        threads: int = 0,
        memory: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Closed with the process.
        self._messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._task = [function, json.dumps(task), str(threads)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.process", *self._task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
            env={**os.environ, **_ENVIRONMENT, **(environment or {})},
        )
        if memory:
            threading.Thread(target=self._limit, args=(memory,), daemon=True).start()
        self.facts = self._answer()

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._messages.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Returns what the process measured, and its peak `memory` in bytes; raises as above."""
        self._process.send_signal(signal.SIGCONT)
        # If the process has ended, `_answer` tells how.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if line.endswith("\n"):
            self._process.send_signal(signal.SIGSTOP)
            return json.loads(line)
        status, messages = self._process.wait(), self.messages()
        raise ProcessError(
            f"Expected {' '.join(self._task)} to answer; its process ended with status {status}. "
            f"The end of its messages:\n{''.join(messages[-20:]).strip() or '(none)'}",
            status in _OUT_OF_MEMORY or any(each in "".join(messages) for each in _MESSAGES),
        )

    def messages(self) -> list[str]:
        """Returns the lines that a process has printed which is not running meanwhile."""
        self._messages.seek(0)
        return self._messages.readlines()

    def _limit(self, memory):
        while held := peak_memory(self._process.pid):
            if held > memory:
                self._process.kill()
            time.sleep(0.01)


def _main(name, task, threads):
    """Calls the function that `name` names and answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if sys.platform == "linux":
        # A stopped process would otherwise outlive a parent that was killed.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if int(threads):
        # Before the libraries are imported, so that it holds for every pool of threads.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
        pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
        os.environ |= dict.fromkeys(pools, threads) | {"TF_NUM_INTEROP_THREADS": "1"}
    module, _, function = name.partition(":")
    facts, measure = getattr(importlib.import_module(module), function)(**json.loads(task))
    print(json.dumps({**facts, "memory": peak_memory()}), file=answers)
    for line in sys.stdin:
        answer = measure(**json.loads(line))
        print(json.dumps({**answer, "memory": peak_memory()}), file=answers)


if __name__ == "__main__":
    _main(*sys.argv[1:])
