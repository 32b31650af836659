import os
import pathlib
import resource
import subprocess
import sys

import pytest

from keras_vit.training.config import overrides
from keras_vit.variants import SIZES

ROOT = pathlib.Path(__file__).parents[2]
TINY = pathlib.Path(__file__).parent / "processes" / "tiny.py"


def process_environment():
    own = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    return os.environ | own


@pytest.fixture
def launch():
    """Returns a function that starts Python with arguments, or a file of `processes` by name."""
    processes = []

    def start(*arguments, environment=None):
        ours = (TINY.parent / f"{arguments[0]}.py").exists()
        quickly = ["-m", "tests.training.processes"] if ours else []
        command = [sys.executable, *quickly, *map(str, arguments)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = process_environment() | (environment or {})
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, **options))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def bird_model(tmp_path_factory):
    from benchmarks.errors_in_runtimes import with_noise
    from tests.tiny_vit import tiny_vit

    model = with_noise(tiny_vit(patch_size=8, num_classes=3))
    model.class_names = ["crow", "finch", "owl"]
    file = tmp_path_factory.mktemp("model") / "m.keras"
    model.save(file)
    return file


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    from tests.training.data.helpers import write_photos

    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, [f"{number:x}.png" for number in range(16)])
    (folder / "3.png").write_bytes(b"no image")
    (folder / "5.png").write_bytes((folder / "5.png").read_bytes()[:200])
    return folder


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    from keras_vit.training.data.sets import prepare_datasets

    folder = tmp_path_factory.mktemp("data")
    prepare_datasets.prepare_embedded("sklearn_digits", folder)
    return str(folder)


@pytest.fixture(scope="session")
def digits(data_dir):
    from keras_vit.training import data

    return data.open_dataset("digits", data_dir)


@pytest.fixture(scope="session")
def tiny(data_dir):
    """Returns the config of `processes/tiny.py` with the values given changed."""

    def config(**changes):
        result = overrides.load_config(str(TINY))
        result.data_dir = data_dir
        result.update(changes)
        return result

    return config


@pytest.fixture
def train_command(data_dir):
    words = ["-m", "training", f"--config={TINY}", f"--config.data_dir={data_dir}"]
    return lambda workdir, *more: [*words, f"--workdir={workdir}", *more]


@pytest.fixture
def no_room():
    """Makes files end at 20 kB, as on a disk that has no more room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def shallow(monkeypatch):
    monkeypatch.setitem(SIZES["Ti"], "num_layers", 1)


@pytest.fixture
def vit():
    from benchmarks.errors_in_runtimes import with_noise
    from tests.tiny_vit import tiny_vit

    return with_noise(tiny_vit(patch_size=8, num_classes=3))
