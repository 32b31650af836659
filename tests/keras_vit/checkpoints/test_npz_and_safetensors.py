"""Files of every kind, written and read."""

import os

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, npz_file_layouts


def test_keras_file_and_run_directory(make_vit, random_images, forward, tmp_path):
    model = make_vit(image_size=(8, 32))
    model.save(tmp_path / "model.keras")
    images = random_images(2, 8, 32)
    for path in (tmp_path / "model.keras", tmp_path):
        other = make_vit(seed=1, image_size=(8, 32))
        keras_vit.load_checkpoint(other, path)
        np.testing.assert_array_equal(forward(other, images), forward(model, images))
    resized = make_vit(seed=1, image_size=(16, 24), num_classes=3)
    keras_vit.load_checkpoint(resized, tmp_path, skip=("head",))
    images = random_images(2, 16, 24)
    encoded = [m.any_resolution("encoded") for m in (model, resized)]
    np.testing.assert_allclose(*(forward(m, images) for m in encoded), atol=5e-6)


def test_keras_file_of_masked_patch_prediction(make_vit, to_numpy, tmp_path):
    model, other = make_vit(), make_vit(seed=1)
    keras_vit.MaskedPatchPrediction(model).save(tmp_path / "model.keras")
    keras_vit.load_checkpoint(other, tmp_path / "model.keras", skip=("head",))
    np.testing.assert_array_equal(
        *(to_numpy(m.blocks[1].mlp.hidden_dense.kernel) for m in (model, other))
    )


class Trap:
    """An object that leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_are_never_loaded(make_vit, tmp_path):
    trace = tmp_path / "opened"
    np.savez(tmp_path / "a.npz", cls=np.array([Trap(trace)], dtype=object))
    with pytest.raises(CheckpointError, match=r"Array 'cls' .*OBJECT"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.npz", skip=("cls",))
    np.array([Trap(trace)], dtype=object).dump(tmp_path / "b.pkl")
    with pytest.raises(CheckpointError, match="can run code"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "b.pkl")
    assert not trace.exists()
    with np.load(tmp_path / "a.npz", allow_pickle=True) as file:
        file["cls"]
    assert trace.exists()


def test_empty_file_and_directory(make_vit, tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        keras_vit.load_checkpoint(make_vit(), tmp_path)
    (tmp_path / "a.npz").touch()
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.npz")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')
    with pytest.raises((FileNotFoundError, CheckpointError)):
        keras_vit.load_checkpoint(make_vit(), tmp_path)


def test_compressed_archives_of_any_name_are_read(make_vit, saved, assert_same_weights, tmp_path):
    model, other = (make_vit(seed, representation_size=12) for seed in (0, 1))
    with np.load(saved) as file, open(tmp_path / "weights.bin", "wb") as target:
        np.savez_compressed(target, **dict(file.items()))
    keras_vit.load_checkpoint(other, tmp_path / "weights.bin")
    assert_same_weights(model, other)


def test_file_appears_only_when_complete(make_vit, tmp_path, monkeypatch):
    """An error leaves the earlier file and nothing else."""
    path = tmp_path / "model.npz"
    path.write_bytes(b"before")

    def fail(self, array, weights):
        raise OSError("no space left on device")

    monkeypatch.setattr(npz_file_layouts.Layout, "pack", fail)
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
