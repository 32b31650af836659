import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

import keras_vit
from keras_vit.checkpoints import CheckpointError
from tests.keras_vit.small import make_vit

SETTINGS = settings(max_examples=30, deadline=None, derandomize=True)
SIZES = [(["a", 8], 4), ([8], 4), ([8, 8, 8], 4), ([8, 8], 0)]
CONFIGS = [json.dumps({"image_size": size, "patch_size": patch}) for size, patch in SIZES]
WRONG = {
    "config.json": ["[]", "null", "3", "[" * 100_000, "{", *CONFIGS],
    "model.safetensors.index.json": ["[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 1}}'],
}


@pytest.fixture(scope="module")
def model():
    return make_vit(hidden_size=8, mlp_dim=8, num_layers=1, num_classes=2, image_size=8)


@pytest.fixture(scope="module")
def arrays(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "model.npz"
    keras_vit.save_checkpoint(model, path)
    # Other values than the model's own, so that a change would show.
    return {name: array + 1 for name, array in np.load(path).items()}


@pytest.fixture(scope="module")
def attempt(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "model"

    def attempt(data):
        path.write_bytes(data)
        before = model.get_weights()
        try:
            keras_vit.load_checkpoint(model, path)
        except CheckpointError as error:
            assert all(map(np.array_equal, model.get_weights(), before))
            assert str(path) in str(error)
            return False
        assert all(np.isfinite(w).all() for w in model.get_weights())
        model.set_weights(before)
        return True

    return attempt


def npz(arrays, **contents):
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
    timm = save(golden.checkpoint(cases["timm"]))
    for data in (npz(arrays), timm, (tmp_path / "model.keras").read_bytes()):
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
        file = np.load(io.BytesIO(bytes(content)))
        assert all((file[name] == array).all() for name, array in arrays.items())


def assert_refused_within(memory, data, attempt):
    tracemalloc.start()
    try:
        assert not attempt(data) and tracemalloc.get_traced_memory()[1] < memory
    finally:
        tracemalloc.stop()


def test_a_keras_file_of_another_package_or_whose_members_are_bombs(attempt):
    layer = {"module": "keras.layers", "class_name": "TorchModuleWrapper"}
    layer["config"] = {"name": "t", "module": "", "output_shape": None}
    for config in (json.dumps(layer), b" " * 2**25):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("metadata.json", "config.json", "model.weights.h5"):
                archive.writestr(name, config if name == "config.json" else "{}")
        assert_refused_within(2**24, packed.getvalue(), attempt)


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
    header, claimed = io.BytesIO(), {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, claimed)
    content = {"Transformer/posembed_input/pos_embedding": header.getvalue() + bytes(64)}
    assert_refused_within(20e6, npz(arrays, **content), attempt)


def test_numbers_of_8_bits_are_not_called_damaged(model, tmp_path):
    header = b'{"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}'
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"8")
    with pytest.raises(CheckpointError, match=r"Received: .*, whose a is F8_E4M3\. Save it as bf"):
        keras_vit.load_checkpoint(model, tmp_path / "a.safetensors")


@pytest.mark.parametrize(("name", "content"), [(n, c) for n in WRONG for c in WRONG[n]])
def test_json_of_the_wrong_type(name, content, model, tmp_path):
    (tmp_path / name).write_text(content)
    if name == "config.json":
        (tmp_path / "model.safetensors").write_bytes(save({"a": np.zeros(1, "float32")}))
    with pytest.raises(CheckpointError, match=f"{name} is damaged".replace(".", r"\.")):
        keras_vit.load_checkpoint(model, tmp_path)
