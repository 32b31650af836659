"""Lanes whose packages do not go with those of .venv: run with beam, loggers, hugging_face, …"""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile

ROOT = pathlib.Path(__file__).parents[1]


def python_of(name, lock, python, over=False, options=()) -> pathlib.Path:
    """Returns the Python of the environment in a folder, built of `python` if `lock` is newer.

    Its packages are those of the file `lock` alone, or lie `over` those of this environment;
    `options` are of their installation.
    """
    folder, lock_path = ROOT / name, ROOT / lock
    installed = folder / "installed"
    if not (installed.exists() and installed.stat().st_mtime >= lock_path.stat().st_mtime):
        print(f"Installing the packages of {lock} into {name} (once, half a minute)", flush=True)
        uv = pathlib.Path(sysconfig.get_path("scripts"), "uv")
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", python, folder], check=True)
        if over:
            (packages,) = folder.glob("lib/python*/site-packages")
            (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        install = [uv, "pip", "install", "--quiet", "--python", folder / "bin/python"]
        subprocess.run([*install, "--no-deps", *options, "-r", lock_path], check=True)
        installed.touch()
    return folder / "bin/python"


def beam() -> int:
    """Prepares data sets with Apache Beam, which asks for older packages than those of .venv."""
    python = python_of(".venv-beam", "requirements-beam.lock", sys.executable, over=True)
    subprocess.run([python, "-c", "import apache_beam"], check=True)
    chosen = ["-m", "pytest", "-p", "no:xdist", "tests/training/data/test_data_command.py"]
    return subprocess.run([python, *chosen, "-k", "beam"], cwd=ROOT, check=False).returncode


# Where pip is told of a folder of wheels, that is where PyTorch's for processors lies.
WHEELS = os.environ.get("PIP_FIND_LINKS")
FOR_PROCESSORS = ["--find-links", WHEELS] if WHEELS else ["--torch-backend", "cpu"]


def hugging_face() -> int:
    """Opens folders in transformers and timm, with PyTorch for processors."""
    environment = ".venv-hugging-face", "requirements-hugging-face.lock", sys.executable
    python = python_of(*environment, over=True, options=FOR_PROCESSORS)
    chosen = ["-m", "pytest", "-p", "no:xdist", "-rs", "tests/export/test_hugging_face.py"]
    return subprocess.run([python, *chosen], cwd=ROOT, check=False).returncode


def loggers() -> int:
    """Logs to Weights & Biases and MLflow as docs/extend.md does, without a network."""
    python = python_of(".venv-loggers", "requirements-loggers.lock", sys.executable)
    chosen = ["-m", "pytest", "--strict-markers", "tests/test_loggers.py"]
    return subprocess.run([python, *chosen], cwd=ROOT, check=False).returncode


# Dropout draws from torch's own stream, which is not saved: docs/models.md.
NOT_ON_TORCH = "test_training_continues_from_a_file"


def torch() -> int:
    """Runs the library's tests on Keras's torch backend, and `model.fit` on loaders of others."""
    environment = ".venv-torch", "requirements-torch.lock", sys.executable
    python = python_of(*environment, over=True, options=FOR_PROCESSORS)
    chosen = [python, "-m", "pytest", "-p", "no:xdist", "-m", "not slow and not long"]
    torch, tensorflow = ({**os.environ, "KERAS_BACKEND": name} for name in ("torch", "tensorflow"))
    chosen += ["-k", f"not {NOT_ON_TORCH}"]
    for tests, environment in (("tests/keras_vit", torch), ("tests/test_loaders.py", tensorflow)):
        result = subprocess.run([*chosen, tests], cwd=ROOT, env=environment, check=False)
        if result.returncode:
            return result.returncode
    return 0


def tpu() -> int:
    """Trains with TPUStrategy in TensorFlow's last environment for TPUs.

    tensorflow-tpu takes the place of tensorflow. Without a TPU the command has to come as far as
    looking for one.
    """
    python = python_of(".venv-tpu", "requirements-tpu.lock", sys.executable)
    with tempfile.TemporaryDirectory() as workdir:
        options = ["--config=quickstart", "--config.strategy=tpu", f"--workdir={workdir}/run"]
        # Else it asks a metadata server, for minutes, which TPU this is.
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TPU_SKIP_MDS_QUERY": "1"}
        command, kept = [python, "-m", "training", *options], {"capture_output": True, "text": True}
        result = subprocess.run(command, cwd=ROOT, env=environment, check=False, **kept)
    said = result.stderr.splitlines()[-1:]
    print(*said)
    looked_for_a_tpu = result.returncode == 2 and "The TPU 'local' cannot be reached" in said[0]
    if not looked_for_a_tpu:
        print(result.stdout, result.stderr, f"Exit status {result.returncode}, expected 2.")
    return 0 if looked_for_a_tpu else 1


def gpu() -> int:
    """Computes every kind of model on LiteRT's GPU delegate.

    On a machine without a Vulkan driver it unpacks the one in software that Debian's Chromium
    brings along (.venv-vulkan). Where that cannot be had either, the lane says so and is skipped.
    """
    from keras_vit.export.errors import RuntimeMissing
    from keras_vit.export.verification.runtimes import LOADER, SOFTWARE, vulkan_environment

    try:
        driver = vulkan_environment()
    except RuntimeMissing as missing:
        unpacked = ROOT / ".venv-vulkan"
        folder = unpacked / "usr/lib/chromium"
        if not (folder / SOFTWARE).exists():
            with tempfile.TemporaryDirectory() as directory:
                try:
                    subprocess.run(["apt-get", "download", "chromium"], cwd=directory, check=True)
                    (package,) = pathlib.Path(directory).glob("chromium_*.deb")
                    subprocess.run(["dpkg", "-x", package, unpacked], check=True)
                except (OSError, subprocess.CalledProcessError):
                    print(f"Skipped: {missing} Nor can apt-get download chromium.")
                    return 0
        driver = {"VK_ICD_FILENAMES": f"{folder / SOFTWARE}", "LD_PRELOAD": f"{folder / LOADER}"}
    chosen = ["-m", "pytest", "-p", "no:xdist", "-rs", "-k", "gpu or accelerator"]
    files = ("test_variants.py", "tflite/test_delegates.py", "verification/test_runtimes.py")
    command = [sys.executable, *chosen, *(f"tests/export/{name}" for name in files)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | driver, check=False).returncode


if __name__ == "__main__":
    lanes = (beam, loggers, hugging_face, torch, tpu, gpu)
    sys.exit({lane.__name__: lane for lane in lanes}[sys.argv[1]]())
