"""`python -m tests.gpu_delegate`: every kind of model on LiteRT's GPU delegate.

On a machine without a Vulkan driver it unpacks the one in software that Debian's Chromium brings
along (.venv-vulkan, once). Where that cannot be had either, the lane says so and is skipped.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.verification.runtimes import LOADER, SOFTWARE, vulkan_environment
from tests.other_environments import ROOT

TESTS = ("test_variants.py", "tflite/test_delegates.py", "verification/test_runtimes.py")
UNPACKED = ROOT / ".venv-vulkan"


def main() -> int:
    try:
        driver = vulkan_environment()
    except RuntimeMissing as missing:
        folder = _unpacked_chromium()
        if folder is None:
            print(f"Skipped: {missing} Nor can apt-get download chromium.")
            return 0
        driver = {"VK_ICD_FILENAMES": f"{folder / SOFTWARE}", "LD_PRELOAD": f"{folder / LOADER}"}
    chosen = ["-m", "pytest", "-p", "no:xdist", "-rs", "-k", "gpu or accelerator"]
    command = [sys.executable, *chosen, *(f"tests/export/{name}" for name in TESTS)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | driver, check=False).returncode


def _unpacked_chromium() -> pathlib.Path | None:
    """Returns the folder of Debian's Chromium, which is downloaded once; None if it cannot be."""
    folder = UNPACKED / "usr/lib/chromium"
    if not (folder / SOFTWARE).exists():
        with tempfile.TemporaryDirectory() as directory:
            try:
                subprocess.run(["apt-get", "download", "chromium"], cwd=directory, check=True)
                (package,) = pathlib.Path(directory).glob("chromium_*.deb")
                subprocess.run(["dpkg", "-x", package, UNPACKED], check=True)
            except (OSError, subprocess.CalledProcessError):
                return None
    return folder


if __name__ == "__main__":
    sys.exit(main())
