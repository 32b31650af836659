"""Killed, or failed by the file system, at each change of a file in turn: nothing is lost.

What is opened, written, renamed and removed is counted below Python, where TensorFlow, HDF5 and
safetensors write as well.
"""

import os
import random
import re
import shutil
import signal

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.export import to_hub, to_tflite
from keras_vit.export.verification.runtimes import open_hub
from tests.fuzz.conftest import SEED, tally, times
from tests.tiny_vit import tiny_vit
from tests.training.conftest import TINY
from tests.training.runs import rows

OPTIONS = ["total_steps=8", "steps_per_call=2", "log_every_steps=2", "eval_every_steps=4"]
OPTIONS += ["checkpoint_every_steps=4", "eval_split=test[:16]"]
# How many of the changes are tried, times the lane's factor; all are for `make test-changes`.
SOME = pytest.param(4, marks=pytest.mark.long, id="some")
ALL = pytest.param(None, marks=[pytest.mark.slow, pytest.mark.timeout(7200)], id="all")
# How a process may end whose change meets a fault; what is only tidied up may fail.
ENDS = {"slow": (0,), "kill": (0, -signal.SIGKILL), "fail": (0, 1, 2)}


@pytest.fixture(params=["tensorflow", "jax"])
def train(request, faulty, tiny, tmp_path):
    if request.param == "jax":
        pytest.importorskip("jax", reason="make test-jax installs it")
    used = ("command_line.run_command", "io.quiet_start", "loop.trainer", f"engine.{request.param}")
    environment = {  # What a killed process compiled, the next one need not.
        "KERAS_BACKEND": request.param,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    run = faulty(environment, *(f"keras_vit.training.{name}" for name in used))
    options = [f"--config.{each}" for each in (*OPTIONS, f"data_dir={tiny().data_dir}")]

    def start(folder, fault="none", number=0):
        arguments = [f"--config={TINY}", f"--workdir={folder}", *options]
        return run(folder, fault, number, "keras_vit.__main__", arguments)

    return start


def chosen(name, some, output):
    """Yields (fault, change) to try, of as many changes as an undisturbed process has printed."""
    every = range(1, 1 + int(output.split()[-2]))
    for fault in ("kill", "fail"):
        rng = random.Random(f"{SEED}/{name}/{fault}")
        found = sorted(rng.sample(every, min(times(some), len(every)))) if some else every
        yield from ((fault, number) for number in found)


def files(folder):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    return {name for name in names if "tfevents" not in name}


def assert_same_models(folder, other, said):
    for name in ("model.keras", "best.keras"):
        models = [keras.saving.load_model(each / name, compile=False) for each in (folder, other)]
        for weights in zip(*(model.get_weights() for model in models), strict=True):
            np.testing.assert_array_equal(*weights, err_msg=f"{name}: {said}")


@pytest.mark.parametrize("some", [SOME, ALL])
def test_training(some, train, request, tmp_path):
    undisturbed = tmp_path / "undisturbed"
    status, output = train(undisturbed)
    assert status == 0, output
    for fault, number in (("slow", 0), *chosen(request.node.name, some, output)):
        workdir = tmp_path / str(number)
        status, output = train(workdir, fault, number)
        said = f"{fault} {number}: {output}"
        assert status in ENDS[fault], said
        # The last line but the number of changes.
        assert status < 1 or output.splitlines()[-2].startswith("error: "), said
        status, output = train(workdir)
        assert status == 0, said + output
        assert_same_models(workdir, undisturbed, said)
        assert rows(workdir) == rows(undisturbed), said
        assert files(workdir) == files(undisturbed), said
        shutil.rmtree(workdir)
        tally(f"training, {fault} at a change", "refused" if status else "read")


def content(path):
    found = [path, *path.rglob("*")]
    return {str(each.relative_to(path)): each.read_bytes() for each in found if each.is_file()}


@pytest.mark.parametrize("write", [keras_vit.save_checkpoint, to_tflite, to_hub])
def test_exports_on_a_full_disk(write, no_room, tmp_path):
    model, target = tiny_vit(num_layers=1), tmp_path / "model.npz"
    write(model, target)
    before = content(tmp_path)
    no_room()
    with pytest.raises((OSError, ValueError)) as error:
        write(model, target)
    assert str(error.value) and content(tmp_path) == before


def is_whole(target, before):
    now = content(target)
    return now == before or (target.is_dir() and now.keys() == before.keys() and open_hub(target))


@pytest.mark.parametrize("name", ["npz", "tflite", "hub"])
@pytest.mark.parametrize("some", [SOME, ALL])
def test_exports(some, name, faulty, request, tmp_path):
    source, target = tmp_path / "source.keras", tmp_path / "exports" / f"model.{name}"
    target.parent.mkdir()
    tiny_vit(num_layers=1).save(source)
    used = ("run_export", "hub.to_hub", "tflite.to_tflite")
    run = faulty({}, "keras_vit.__main__", *(f"keras_vit.export.{module}" for module in used))

    def export(fault="none", number=0):
        arguments = ["export", name, str(source), f"--output={target}"]
        return run(target.parent, fault, number, "keras_vit.__main__", arguments)

    for _ in range(2):
        status, output = export()
        assert status == 0, output
    before = content(target)
    for fault, number in chosen(request.node.name, some, output):
        status, output = export(fault, number)
        said = f"{fault} {number}: {status} {output}"
        beside = [each for each in target.parent.iterdir() if each != target]
        # What a killed process had not finished, or what could not be removed.
        assert all(each.name.startswith(".") for each in beside), said
        if fault == "fail" and not re.search(r"change \d+: (rmdir|unlink)", output):
            assert not beside, said
        # Between two renames of a folder, the one before is hidden as well.
        if target.exists() or not beside:
            assert is_whole(target, before), said
        if beside:
            again, output = export()
            assert again == 0 and os.listdir(target.parent) == [target.name], said + output
        assert is_whole(target, before), said
        before = content(target)
        tally(f"export {name}, {fault} at a change", "refused" if status else "read")
