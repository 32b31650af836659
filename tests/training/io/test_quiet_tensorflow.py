import subprocess
import sys

SCRIPT = """
from training.io.quiet_tensorflow import quiet_start
import os
with quiet_start():
    os.write(2, b"I0000 00:00:1 port.cc:153] oneDNN custom operations are on.\\n")
    os.write(2, b"a real problem\\n")
    {body}
os.write(2, b"afterwards\\n")
"""


def run(body):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body)], capture_output=True, text=True
    )


def test_drops_chatter_and_keeps_the_rest():
    result = run("pass")
    assert result.stderr == "a real problem\nafterwards\n"


def test_keeps_the_error_of_a_failed_import():
    result = run("raise ImportError('missing library')")
    assert result.returncode == 1
    assert result.stderr.startswith("a real problem\nTraceback")
    assert "missing library" in result.stderr
