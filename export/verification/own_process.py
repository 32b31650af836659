"""Programs of this package in a process of their own, which loads only what they import."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence


def run_module(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Calls `main()` of a module in a new process, and returns what it printed.

    Args:
        module: its full name.
        arguments: of its command line.
        environment: variables beside those of this process.
    """
    # Without the current folder, where a file of the user's may be called training.py.
    start = f"import sys; sys.path[:] = filter(None, sys.path); from {module} import main; main()"
    root = str(pathlib.Path(__file__).parents[2])
    search_path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": search_path, **(environment or {})},
    )
