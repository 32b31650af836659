"""`python -m tests.beam`: prepares data sets with Apache Beam, on this machine.

Beam asks for older packages than those of .venv, so that an environment of its own (.venv-beam,
built once) holds these and sees the rest of .venv.
"""

import subprocess
import sys

from tests.other_environments import ROOT, python_of


def main() -> int:
    python = python_of(".venv-beam", "requirements-beam.lock", sys.executable, over=True)
    subprocess.run([python, "-c", "import apache_beam"], check=True)
    chosen = ["-m", "pytest", "-p", "no:xdist", "tests/training/data/test_data_command.py"]
    return subprocess.run([python, *chosen, "-k", "beam"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
