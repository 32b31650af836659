import os
from unittest.mock import Mock

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, npz_file_layouts
from tests.keras_vit.small import assert_same, forward, make_images, make_vit


def test_keras_files_and_run_directory(tmp_path):
    model = make_vit(image_size=(8, 32))
    model.save(tmp_path / "model.keras")
    images = make_images(2, 8, 32)
    for path in (tmp_path / "model.keras", tmp_path):
        other = make_vit(seed=1, image_size=(8, 32))
        keras_vit.load_checkpoint(other, path)
        np.testing.assert_array_equal(forward(other, images), forward(model, images))
    resized = make_vit(seed=1, image_size=(16, 24), num_classes=3)
    keras_vit.load_checkpoint(resized, tmp_path, skip=("head",))
    images = make_images(2, 16, 24)
    encoded = [m.any_resolution("encoded") for m in (model, resized)]
    np.testing.assert_allclose(*(forward(m, images) for m in encoded), atol=5e-6)
    # Masked patch prediction saves more than its encoder, and no head.
    keras_vit.MaskedPatchPrediction(resized).save(tmp_path / "model.keras")
    other = make_vit(seed=2, image_size=(16, 24), num_classes=3)
    keras_vit.load_checkpoint(other, tmp_path, skip=("head",))
    assert_same(resized.blocks[1], other.blocks[1])


class Trap:
    """An object that leaves a trace when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickles_are_never_loaded(tmp_path):
    trap, trace = Trap(), tmp_path / "opened"
    trap.path = str(trace)
    np.savez(tmp_path / "a.npz", cls=np.array([trap], dtype=object))
    with pytest.raises(CheckpointError, match=r"Array 'cls' .*OBJECT"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.npz", skip=("cls",))
    np.array([trap], dtype=object).dump(tmp_path / "b.pkl")
    with pytest.raises(CheckpointError, match="can run code"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "b.pkl")
    assert not trace.exists()
    assert np.load(tmp_path / "a.npz", allow_pickle=True)["cls"] == [None]  # what mkdir returns
    assert trace.exists()


def test_empty_file_and_directory(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        keras_vit.load_checkpoint(make_vit(), tmp_path)
    (tmp_path / "a.npz").touch()
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.npz")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')
    with pytest.raises((FileNotFoundError, CheckpointError)):
        keras_vit.load_checkpoint(make_vit(), tmp_path)


def test_compressed_archives_of_any_name_are_read(saved, tmp_path):
    model, other = (make_vit(seed, representation_size=12) for seed in (0, 1))
    with np.load(saved) as file, open(tmp_path / "weights.bin", "wb") as target:
        np.savez_compressed(target, **file)
    keras_vit.load_checkpoint(other, tmp_path / "weights.bin")
    assert_same(model, other)


def test_file_appears_only_when_complete_and_else_the_earlier_one_stays(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    path.write_bytes(b"before")
    monkeypatch.setattr(npz_file_layouts.Layout, "pack", Mock(side_effect=OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        keras_vit.save_checkpoint(make_vit(), path)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["model.npz"]


def test_half_precision_models_are_written_in_single(tmp_path):
    model = make_vit(dtype="bfloat16")
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert {array.dtype for array in np.load(tmp_path / "a.npz").values()} == {np.dtype("float32")}
    keras_vit.load_checkpoint(model, tmp_path / "a.npz")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_no_reader_takes_are_not_written(tmp_path, value):
    model = make_vit()
    model.weights[3].assign(np.full(model.weights[3].shape, value))
    with pytest.raises(ValueError, match=f"finite weights.*in {model.weights[3].path}. Nothing"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert not os.listdir(tmp_path)
