"""`python -m tests.tpu_strategy`: TPUStrategy in TensorFlow's last environment for TPUs.

tensorflow-tpu takes the place of tensorflow, so it has an environment of its own (.venv-tpu, built
once). On a machine without a TPU a training command there has to come as far as looking for one.
"""

import os
import subprocess
import sys
import tempfile

from tests.other_environments import ROOT, python_of


def main() -> int:
    python = python_of(".venv-tpu", "requirements-tpu.lock", sys.executable)
    with tempfile.TemporaryDirectory() as workdir:
        command = ["-m", "training", "--config=quickstart", "--config.strategy=tpu"]
        # Else it asks a metadata server, for minutes, which TPU this is.
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TPU_SKIP_MDS_QUERY": "1"}
        command = [python, *command, f"--workdir={workdir}/run"]
        options = {"cwd": ROOT, "env": environment, "check": False}
        result = subprocess.run(command, capture_output=True, text=True, **options)
    said = result.stderr.splitlines()[-1:]
    print(*said)
    looked_for_a_tpu = result.returncode == 2 and "The TPU 'local' cannot be reached" in said[0]
    if not looked_for_a_tpu:
        print(result.stdout, result.stderr, f"Exit status {result.returncode}, expected 2.")
    return 0 if looked_for_a_tpu else 1


if __name__ == "__main__":
    sys.exit(main())
