import os
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError


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


def test_keras_file_of_a_resnet(make_resnet, random_images, forward, tmp_path):
    model, other = make_resnet(), make_resnet(seed=1)
    model.save(tmp_path / "model.keras")
    keras_vit.load_checkpoint(other, tmp_path / "model.keras")
    images = random_images(2, 32, 32)
    np.testing.assert_array_equal(forward(other, images), forward(model, images))


def test_keras_file_of_masked_patch_prediction(make_vit, to_numpy, tmp_path):
    model, other = make_vit(), make_vit(seed=1)
    keras_vit.MaskedPatchPrediction(model).save(tmp_path / "model.keras")
    keras_vit.load_checkpoint(other, tmp_path / "model.keras", skip=("head",))
    np.testing.assert_array_equal(
        *(to_numpy(m.blocks[1].mlp.hidden_dense.kernel) for m in (model, other))
    )


def test_name_of_the_file_does_not_matter(make_vit, tmp_path):
    keras_vit.save_checkpoint(make_vit(), tmp_path / "weights.bin")
    keras_vit.load_checkpoint(make_vit(seed=1), tmp_path / "weights.bin")


class Trap:
    """An object that leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_are_never_loaded(make_vit, tmp_path):
    trace = tmp_path / "opened"
    np.savez(tmp_path / "a.npz", cls=np.array([Trap(trace)], dtype=object))
    with pytest.raises(CheckpointError, match="pickled Python objects under 'cls'"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.npz", skip=("cls",))
    np.array([Trap(trace)], dtype=object).dump(tmp_path / "b.pkl")
    with pytest.raises(CheckpointError, match="can run code"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "b.pkl")
    assert not trace.exists()
    with np.load(tmp_path / "a.npz", allow_pickle=True) as file:
        file["cls"]
    assert trace.exists()


def test_empty_file(make_vit, tmp_path):
    (tmp_path / "a.npz").touch()
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.npz")


def test_empty_directory(make_vit, tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        keras_vit.load_checkpoint(make_vit(), tmp_path)


def test_huge_header_allocates_nothing(make_vit, tmp_path):
    """A header may promise more than any memory holds; shapes are compared first."""
    keras_vit.save_checkpoint(make_vit(), tmp_path / "a.npz")
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.npz") as source:
        members = {name: source.read(name) for name in source.namelist()}
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 4611686018427387903), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    members["cls.npy"] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as target:
        for name, data in members.items():
            target.writestr(name, data)
    with pytest.raises(CheckpointError) as error:
        keras_vit.load_checkpoint(make_vit(), tmp_path / "b.npz")
    assert error.value.mis_shaped == ("cls",)


def test_compressed_archives_are_read(make_vit, random_images, forward, tmp_path):
    model, other = make_vit(), make_vit(seed=1)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        np.savez_compressed(tmp_path / "b.npz", **dict(file.items()))
    keras_vit.load_checkpoint(other, tmp_path / "b.npz")
    images = random_images()
    np.testing.assert_array_equal(forward(other, images), forward(model, images))


def test_missing_shard(make_vit, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')
    with pytest.raises((FileNotFoundError, CheckpointError)):
        keras_vit.load_checkpoint(make_vit(), tmp_path)
    shutil.rmtree(tmp_path)
