import os

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import npz_layouts


def test_file_appears_only_when_complete(make_vit, tmp_path, monkeypatch):
    """An error leaves the earlier file and nothing else."""
    path = tmp_path / "model.npz"
    path.write_bytes(b"before")

    def fail(self, array, weights):
        raise OSError("no space left on device")

    monkeypatch.setattr(npz_layouts.Layout, "pack", fail)
    with pytest.raises(OSError, match="no space"):
        keras_vit.save_checkpoint(make_vit(), path)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["model.npz"]


def test_half_precision_models_are_written_in_single(make_vit, tmp_path):
    model = make_vit(dtype="bfloat16")
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        assert {file[name].dtype for name in file.files} == {np.dtype("float32")}
    keras_vit.load_checkpoint(model, tmp_path / "a.npz")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_no_reader_takes_are_not_written(make_vit, tmp_path, value):
    model = make_vit()
    model.weights[3].assign(np.full(model.weights[3].shape, value))
    with pytest.raises(ValueError, match=f"finite weights.*in {model.weights[3].path}. Nothing"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert not os.listdir(tmp_path)
