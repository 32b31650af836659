"""A file system that is full, slow or fails: nothing is lost, nothing is half there."""

import errno
import os
import random
import resource
import time

import keras
import numpy as np
import pytest

import export
import keras_vit
from training.errors import TrainingError
from training.loop import trainer

SEED = int(os.environ.get("FUZZ_SEED", "0"))


@pytest.fixture
def fault(monkeypatch):
    """Returns a function that lets the n-th rename fail, or a disk be full, or renames be slow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    replace = os.replace

    def arrange(kind, number):
        left = [number]

        def failing(source, target, **options):
            left[0] -= 1
            if kind == "slow":
                time.sleep(0.05)
            if kind == "rename" and left[0] == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))
            return replace(source, target, **options)

        monkeypatch.setattr(os, "replace", failing)
        if kind == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (number, hard))

    def repair():
        monkeypatch.setattr(os, "replace", replace)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    arrange.repair = repair
    yield arrange
    repair()


@pytest.fixture(scope="module")
def config(tiny):
    return tiny(total_steps=24, eval_every_steps=12, eval_split="test[:16]")


@pytest.fixture(scope="module")
def expected(config, tmp_path_factory):
    """The weights of a run that nothing disturbed."""
    workdir = tmp_path_factory.mktemp("undisturbed")
    trainer.train(config, workdir)
    return keras.saving.load_model(workdir / "model.keras", compile=False).get_weights()


@pytest.mark.long
def test_training(config, expected, fault, times, tally, tmp_path):
    rng = random.Random(f"{SEED}/file system")
    for number in range(times(2)):
        workdir = tmp_path / str(number)
        kind = ("rename", "full", "slow")[number % 3]
        # Renames of a run; bytes from a config's to those of its largest file.
        fault(kind, rng.randrange(1, 7) if kind == "rename" else rng.randrange(2_000, 300_000))
        try:
            trainer.train(config, workdir)
            outcome = "read"
        except TrainingError as error:
            assert str(error), (SEED, number)
            assert kind != "slow"
            outcome = "refused"
        fault.repair()
        assert trainer.train(config, workdir)["step"] == 24
        model = keras.saving.load_model(workdir / "model.keras", compile=False)
        for weight, other in zip(model.get_weights(), expected, strict=True):
            np.testing.assert_array_equal(weight, other, err_msg=f"{SEED} {number} {kind}")
        assert not [file.name for file in workdir.iterdir() if file.name.startswith(".")]
        tally(f"training, {kind}", outcome)


@pytest.fixture(scope="module")
def vit():
    keras.utils.set_random_seed(0)
    return keras_vit.VisionTransformer(
        image_size=8, patch_size=4, hidden_size=8, mlp_dim=8, num_heads=1, num_layers=1
    )


EXPORTS = {
    "npz": lambda model, path: keras_vit.save_checkpoint(model, path),
    "tflite": export.to_tflite,
    "hub": export.to_hub,
}


@pytest.mark.parametrize("name", EXPORTS)
def test_exports(name, vit, fault, times, tally, tmp_path):
    rng = random.Random(f"{SEED}/exports/{name}")
    target = tmp_path / f"model.{name}"
    EXPORTS[name](vit, target)
    before = content(tmp_path)
    for number in range(times(1)):
        kind = ("full", "rename")[number % 2]
        fault(kind, rng.randrange(100, 20_000) if kind == "full" else 1)
        with pytest.raises((OSError, ValueError)) as error:
            EXPORTS[name](vit, target)
        fault.repair()
        assert str(error.value)
        assert content(tmp_path) == before, (SEED, number, kind)
        tally(f"export {name}, {kind}", "refused")


def content(folder):
    return {path: path.is_file() and path.read_bytes() for path in sorted(folder.rglob("*"))}
