"""The parent's handle on a contestant's process."""

import json
import os
import signal
import subprocess
import sys
import tempfile

_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


class ContestantError(RuntimeError):
    """A contestant's process ended before it answered."""


class Contestant:
    """A process that holds one case ready and is stopped while it is not measured.

    Use as a context manager: it starts the process, waits until the step has been
    built and run, stops it, and ends it on leaving.

    Args:
        case: a `benchmarks.harness.case.Case`.

    Attributes:
        facts: dict, what the contestant said about itself when it was ready.
    """

    def __init__(self, case):
        self.case = case
        self.facts = None

    def __enter__(self):
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.library_worker", self.case.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **_QUIET},
        )
        try:
            self.facts = self._answer()
        except BaseException:
            self.__exit__()
            raise
        self._process.send_signal(signal.SIGSTOP)
        return self

    def __exit__(self, *exception):
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            stream.close()

    def _answer(self):
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._log.seek(0)
        said = "".join(self._log.readlines()[-20:]).strip()
        raise ContestantError(
            f"Expected {self.case.contestant} to answer; its process ended with code {code}. "
            f"The end of what it said:\n{said or '(nothing)'}"
        )

    def measure(self, seconds):
        """Runs the step for about `seconds`; returns {"times": [...], "memory": bytes}."""
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"seconds": seconds}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._answer()
        answer = self._answer()
        self._process.send_signal(signal.SIGSTOP)
        return answer
