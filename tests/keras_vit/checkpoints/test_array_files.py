import gzip
import os
import pickle
import shutil
import zipfile
from unittest.mock import Mock

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, layout
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
    np.array([trap], dtype=object).dump(tmp_path / "b.pkl")
    with zipfile.ZipFile(tmp_path / "c.pth", "w") as archive:
        archive.writestr("c/data.pkl", pickle.dumps(trap))
    start = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    (tmp_path / "d.pt").write_bytes(start + pickle.dumps(trap))
    shutil.copy(tmp_path / "c.pth", tmp_path / "pytorch_model.bin")
    for name in ("a.npz", "b.pkl", "c.pth", "d.pt", ""):
        with pytest.raises(CheckpointError, match="can run code") as error:
            keras_vit.load_checkpoint(make_vit(), tmp_path / name, skip=("cls",))
        lines = str(error.value).partition("convert it:")[2].split(";\n")
        assert len(lines) == (1 if name == "b.pkl" else 3)
        # A command prints the message in one line.
        compile(" ".join(";".join(lines).split()), "lines", "exec")
    assert not trace.exists()
    assert np.load(tmp_path / "a.npz", allow_pickle=True)["cls"] == [None]  # what mkdir returns
    assert trace.exists()


@pytest.mark.parametrize("kind", ["numbers", "array", "dictionary"])
def test_the_lines_in_the_error_convert_arrays_of_objects(kind, saved):
    arrays = dict(np.load(saved))
    model, boxed = make_vit(seed=1, representation_size=12), np.empty((), object)
    if kind == "numbers":
        np.savez(saved, **{**arrays, "cls": arrays["cls"].astype(object)})
    elif kind == "array":
        boxed[()] = arrays["cls"]
        np.savez(saved, **{**arrays, "cls": boxed})
    else:
        boxed[()] = arrays
        np.savez(saved, boxed)
    with pytest.raises(CheckpointError) as error:
        keras_vit.load_checkpoint(model, saved)
    exec(str(error.value).partition("convert it:")[2], {})
    keras_vit.load_checkpoint(model, saved.with_name("model-converted.npz"))
    assert_same(model, make_vit(representation_size=12))


OTHERS = {
    b"": "nothing: it is empty",
    b"PK\x05\x06" + bytes(18): "nothing: it is empty",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0": "git lfs pull",
    b"\n<!DOCTYPE html>": "a page of the web",
    b'{"weight_map": {}}': "JSON. If it describes a model, pass its folder",
    b"\x80\x04\x95\x05\0\0\0\0\0": "a pickle",
    b"\x93NUMPY\x01\0": "a single array",
    gzip.compress(b"a", mtime=0): "packed: unpack it",
    bytes(257) + b"ustar": "packed: unpack it",
    b"\x82\xa6params\x81": "flax.serialization.msgpack_restore",
    b"\xde\0\x14\xa7layer_0\x81": "flax.serialization.msgpack_restore",
    b"Not Found": "one that starts with b'Not Foun'",
}


@pytest.mark.parametrize("content", OTHERS)
def test_files_of_other_kinds_are_named(content, tmp_path):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"Expected a \.npz, .*Received: ") as error:
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a")
    assert OTHERS[content] in str(error.value)


def test_archives_and_directories_of_other_files_are_named(tmp_path):
    for names, received in (((), "none"), (("b", "a"), "a, b")):
        for name in names:
            (tmp_path / name).touch()
        with pytest.raises(CheckpointError, match=f"holds no checkpoint.*Received: {received}"):
            keras_vit.load_checkpoint(make_vit(), tmp_path)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("vit/model.safetensors", b"")
    with pytest.raises(CheckpointError, match=r"an archive of vit/model\.safetensors\. Unpack it"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.zip")
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
    monkeypatch.setattr(layout.FileArray, "pack", Mock(side_effect=OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        keras_vit.save_checkpoint(make_vit(), path)
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["model.npz"]


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
