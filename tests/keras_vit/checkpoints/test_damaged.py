"""Damaged files always end in a clear error and an unchanged model."""

import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

import keras_vit
from keras_vit.checkpoints import CheckpointError

SETTINGS = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def model(make_vit):
    return make_vit(hidden_size=8, mlp_dim=8, num_layers=1, num_classes=2, image_size=8)


@pytest.fixture(scope="module")
def arrays(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "model.npz"
    keras_vit.save_checkpoint(model, path)
    with np.load(path) as file:
        # Other values than the model's own, so that a change would show.
        return {name: file[name] + 1 for name in file.files}


@pytest.fixture(scope="module")
def attempt(model, to_numpy, tmp_path_factory):
    """Returns a function that loads bytes and says whether that worked.

    An error must be a `CheckpointError` and leave the model as it was.
    """
    path = tmp_path_factory.mktemp("damaged") / "model"

    def state():
        return [to_numpy(v).tobytes() for v in model.variables]

    def attempt(data):
        path.write_bytes(data)
        before = model.get_weights()
        unchanged = state()
        try:
            keras_vit.load_checkpoint(model, path)
        except CheckpointError as error:
            assert state() == unchanged
            assert str(path) in str(error)
            return False
        assert all(np.isfinite(w).all() for w in model.get_weights())
        model.set_weights(before)
        return True

    return attempt


def npz(arrays, **contents):
    """Returns an archive of arrays, some replaced by the bytes of a file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(f"{name}.npy", contents.get(name, member.getvalue()))
    return file.getvalue()


DAMAGES = {
    "remove": lambda array: None,
    "reshape": lambda array: array[None] if array.size == 1 else array.reshape(-1)[:-1],
    "not a number": lambda array: np.where(array == array.max(), np.float32("nan"), array),
    "infinite": lambda array: np.where(array == array.max(), np.float32("inf"), array),
    "integers": lambda array: array.astype("int64"),
    "pickled": lambda array: np.array([array], dtype=object),
    "scalar": lambda array: np.float32(0),
    "empty": lambda array: array[:0],
}


@SETTINGS
@given(data=st.data())
def test_damaged_arrays(data, arrays, attempt):
    names = data.draw(st.sets(st.sampled_from(sorted(arrays)), min_size=1, max_size=3))
    damaged = dict(arrays)
    for name in sorted(names):
        damaged[name] = DAMAGES[data.draw(st.sampled_from(sorted(DAMAGES)))](arrays[name])
    assert not attempt(npz({n: a for n, a in damaged.items() if a is not None}))


def test_truncated_files(arrays, attempt, cases, golden, model, tmp_path):
    model.save(tmp_path / "model.keras")
    for data in (
        npz(arrays),
        save(golden.checkpoint(cases["timm"])),
        (tmp_path / "model.keras").read_bytes(),
    ):
        for fraction in (0, 0.001, 0.1, 0.5, 0.9, 0.999):
            assert not attempt(data[: int(fraction * len(data))])
    assert attempt(npz(arrays))


@SETTINGS
@given(data=st.data())
def test_flipped_bits(data, arrays, attempt):
    """A changed bit is found, unless it lies where the archive holds nothing of use."""
    content = bytearray(npz(arrays))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    if attempt(bytes(content)):
        with np.load(io.BytesIO(bytes(content))) as file:
            assert all((file[name] == array).all() for name, array in arrays.items())


def test_a_keras_file_of_another_package_or_whose_members_are_bombs(attempt):
    layer = {"module": "keras.layers", "class_name": "TorchModuleWrapper"}
    config = json.dumps({**layer, "config": {"name": "t", "module": "", "output_shape": None}})
    for members in ({"config.json": config}, {"config.json": b" " * 2**25}):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in (
                {"metadata.json": "{}", "model.weights.h5": ""} | members
            ).items():
                archive.writestr(name, content)
        tracemalloc.start()
        assert not attempt(packed.getvalue())
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()


@SETTINGS
@given(data=st.data())
def test_damaged_headers(data, arrays, attempt):
    """The header of an array is a literal of Python, and may fail as any text does."""
    name = data.draw(st.sampled_from(sorted(arrays)))
    file = io.BytesIO()
    np.save(file, arrays[name])
    content = bytearray(file.getvalue())
    length = int.from_bytes(content[8:10], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        content[10 + data.draw(st.integers(0, length - 1))] = data.draw(st.integers(0, 255))
    attempt(npz(arrays, **{name: bytes(content)}))


@pytest.mark.parametrize("shape", [(1, 4500**2 + 1, 8), (1, 1, 2**62 - 1), (1, -5, 8)])
def test_claimed_size_is_compared_before_it_exists(arrays, attempt, shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    name = "Transformer/posembed_input/pos_embedding"
    content = npz(arrays, **{name: header.getvalue() + bytes(64)})
    tracemalloc.start()
    try:
        assert not attempt(content)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def sized(image_size, patch_size=4):
    return f'{{"image_size": {image_size}, "patch_size": {patch_size}}}'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("config.json", text) for text in ("[]", "null", "3", "[" * 100_000, "{")),
        *(("config.json", sized(size)) for size in ('["a", 8]', "[8]", "[8, 8, 8]")),
        ("config.json", sized("[8, 8]", patch_size=0)),
        ("model.safetensors.index.json", "[]"),
        ("model.safetensors.index.json", '{"weight_map": 3}'),
        ("model.safetensors.index.json", '{"weight_map": {"a": 1}}'),
        ("model.safetensors.index.json", "{}"),
    ],
)
def test_json_of_the_wrong_type(name, content, model, tmp_path):
    (tmp_path / name).write_text(content)
    if name == "config.json":
        (tmp_path / "model.safetensors").write_bytes(save({"a": np.zeros(1, "float32")}))
    with pytest.raises(CheckpointError, match=f"{name} is damaged".replace(".", r"\.")):
        keras_vit.load_checkpoint(model, tmp_path)
