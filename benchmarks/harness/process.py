"""The asking end of a measured process."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

# How a process ends that asked for too much: killed, by us or the system, or aborted by malloc.
_OUT_OF_MEMORY = (-signal.SIGKILL, -signal.SIGABRT)
# And what JAX and PyTorch say of a GPU's memory.
_MESSAGES = ("RESOURCE_EXHAUSTED", "OutOfMemoryError")
_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


class ProcessError(RuntimeError):
    """A measured process ended before it answered.

    Attributes:
        out_of_memory: whether it was killed or aborted, as happens to one that takes too much, or
            said so itself.
    """

    def __init__(self, message: str, out_of_memory: bool) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory


class Process(contextlib.AbstractContextManager):
    """A process that makes something ready once, measures it when asked, and is stopped else.

    Args:
        function: "MODULE:FUNCTION". The function is called with `task` and returns
            (facts, measure): a dict, and a function of `ask`'s arguments that returns a dict.
        task: keyword arguments that JSON can hold.
        threads: processor cores that the process may use; 0: all.
        memory: bytes that the process may hold before it is killed; 0: no limit.

    Attributes:
        facts: dict, what the function found out, and its `memory` in bytes.

    Raises:
        ProcessError: if the process ends before it is ready.
    """

    def __init__(
        self, function: str, task: dict[str, Any], *, threads: int = 0, memory: int = 0
    ) -> None:
        # Closed with the process.
        self._messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._task = [function, json.dumps(task), str(threads)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness", *self._task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            cwd=pathlib.Path(__file__).parents[2],
            env=os.environ | _ENVIRONMENT,
        )
        if memory:
            threading.Thread(target=self._watch, args=(memory,), daemon=True).start()
        self.facts = self._answer()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._messages.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Returns what the process measured, and its peak `memory` in bytes.

        Raises:
            ProcessError: if the process ends before it has answered.
        """
        self._process.send_signal(signal.SIGCONT)
        # Of a process that has ended, the answer tells how.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.endswith("\n"):
            self._process.send_signal(signal.SIGSTOP)
            return json.loads(line)
        status = self._process.wait()
        self._messages.seek(0)
        end = "".join(self._messages.readlines()[-20:]).strip()
        raise ProcessError(
            f"Expected {' '.join(self._task)} to answer; its process ended with "
            f"status {status}. The end of its messages:\n{end or '(none)'}",
            status in _OUT_OF_MEMORY or any(message in end for message in _MESSAGES),
        )

    def _watch(self, memory: int) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        status = pathlib.Path(f"/proc/{self._process.pid}/statm")
        while self._process.poll() is None:
            try:
                resident = int(status.read_text().split()[1]) * page
            except (OSError, IndexError):
                return
            if resident > memory:
                self._process.kill()
                return
            time.sleep(0.01)
