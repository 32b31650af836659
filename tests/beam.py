"""`python -m tests.beam`: prepares data sets with Apache Beam, on this machine.

Beam asks for older packages than those of .venv, so that an environment of its own (.venv-beam,
built once) holds these and sees the rest of .venv.
"""

import subprocess
import sys

from tests.other_environments import ROOT, python_of


def main() -> int:
    python = python_of(".venv-beam", "requirements-beam.lock", sys.executable, over=True)
    chosen = ["-m", "pytest", "-p", "no:xdist", "tests/training/data/test_beam.py"]
    # Pytest's status is not 0 either where it finds no Beam, and so no test.
    return subprocess.run([python, *chosen], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
