"""Files of arrays: reads them without running anything that they contain, and writes them."""

import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.errors import CheckpointError, reading, some
from keras_vit.checkpoints.layout import Grid
from keras_vit.checkpoints.library_configs import (
    CONFIG,
    json_beside,
    stated_grid,
    stated_head,
    stated_license,
)
from keras_vit.checkpoints.model_source import Kind, model_source
from keras_vit.checkpoints.weights_of_model import weights_of
from keras_vit.files.zip_archives import open_archive
from keras_vit.models.image_model import encoder_of, predicting_model
from keras_vit.models.inner_layers import require_unquantized
from keras_vit.models.segmenter import Segmenter

# Arguments of a model that the arrays' shapes do not show.
STATED = (
    "num_heads",
    "gelu",
    "layer_norm_epsilon",
    "position_embedding",
    "position_placement",
    "pool_padding",
)
# A saved model or a config.json says these of the head: they go with it to the model that loads it.
OF_HEAD = ("class_names", "activation")

# Files of other kinds by how they begin: the kind, and the way to a checkpoint.
_OTHER_KINDS = {
    rb"\Z|PK\x05\x06": "nothing: it is empty. Download or write it again",
    rb"version https://git-lfs": "a pointer of Git LFS. Fetch the file: git lfs pull",
    rb"\s*<": "a page of the web. Download the file itself, for which you may have to log in",
    rb'\s*[{\[]\s*["\]}]': "JSON. If it describes a model, pass its folder",
    rb"\x80[\x02-\x05]": "a pickle, which can run code. If you trust it: numpy.savez of its arrays",
    rb"\x93NUMPY": "a single array. Write all arrays, by name, with numpy.savez",
    rb"\x89HDF": "HDF5. Load it with the model's load_weights, then model.save to a .keras file",
    rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf|(?s:.{257}ustar)": "packed: unpack it",
    rb"[\x80-\x8f\xde\xdf](?s:.{2}|.{4})?[\xa1-\xbf\xd9]": "msgpack. Write it with numpy.savez as "
    "flax.traverse_util.flatten_dict(flax.serialization.msgpack_restore(bytes), sep='/')",
}
# Statements that make a file of arrays of a pickle, for those who trust it.
_TORCH_LINES = """import torch, safetensors.torch;
all = torch.load({0!r}, 'cpu', weights_only=True); arrays = next((each for each in all.values() \
if isinstance(each, dict) and any(map(torch.is_tensor, each.values()))), all);
safetensors.torch.save_file({{name: array.clone().contiguous() for name, array in arrays.items() \
if torch.is_tensor(array)}}, {1!r})"""
_NUMPY_LINES = """import numpy;
all = dict(numpy.load({0!r}, allow_pickle=True)); \
arrays = all['arr_0'].item() if [*all] == ['arr_0'] else all;
numpy.savez({1!r}, **{{name: numpy.array(array.tolist(), 'f4') if array.dtype == object else array \
for name, array in arrays.items()}})"""

ADAPTER = (
    "holds an adapter: changes beside the weights. Merge them: peft.PeftModel.from_pretrained("
    "model, folder).merge_and_unload().save_pretrained(another_folder). Nothing was loaded."
)

# A name of a `tf_model.h5`: of two modules, of PyTorch's and of its leaf.
_H5_NAME = re.compile(r"[^/]+/tf_[^/]+/(.+?)(?:/(kernel|bias|gamma|beta))?:0")
_H5_LEAVES = {"kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}

# The grid of position embeddings that are not square, in the archive's comment.
GRID_COMMENT = re.compile(rb"position grid (\d+)x(\d+)")


@dataclass
class Contents:
    """The contents of a checkpoint; loading changes the arrays to those of a plain model."""

    path: Path
    # By name; those of floating-point numbers are float32.
    arrays: dict[str, np.ndarray]
    # (rows, columns) of its position embeddings if it states them.
    grid: Grid | None = None
    # The config.json beside it.
    config: Mapping[str, Any] = field(default_factory=dict)
    # `OF_HEAD` and license; of a saved model its `STATED` arguments and its classifier too.
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays' shapes by name."""
        return {name: array.shape for name, array in self.arrays.items()}

    def has_numbers(self, name: str) -> bool:
        """Tells whether an array is there and of floating-point numbers."""
        return name in self.arrays and self.arrays[name].dtype == np.float32


def read_arrays(path: str | os.PathLike) -> Contents:
    """Reads a .npz, .safetensors or .keras file, or a directory of `save_pretrained` or a run.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointError: if the file is damaged or of another kind.
    """
    source = model_source(path)
    if source.kind == Kind.LIBRARY_FOLDER:
        return _library_source(source.file)
    path = source.file if source.is_keras else Path(path)
    if path.is_dir():
        raise CheckpointError(
            f"{path} holds no checkpoint. Expected a directory with model.keras, "
            "model.safetensors or model.safetensors.index.json. Received: "
            f"{some(sorted(os.listdir(path))) or 'none'}."
        )
    with open(path, "rb") as file:
        start = file.read(262)
        if start[:4] == b"PK\x03\x04":
            with reading(path), open_archive(file) as archive:
                names = archive.namelist()
                if "model.weights.h5" in names:
                    return _keras_source(path)
                if any(name.endswith(".pkl") for name in names):
                    raise _pickled(path, _TORCH_LINES, ".safetensors")
                if not all(name.endswith(".npy") for name in names):
                    raise _unread(path, f"an archive of {some(names)}. Unpack it")
                return _npz_source(path, archive)
    if start[4:9] == b"\0\0\0\0{":
        return _safetensors_source([path])
    if start[:4] == b"\x89HDF" and (read := _h5_source(path)):
        return read
    if start[:4] == b"\x80\x02\x8a\n":
        raise _pickled(path, _TORCH_LINES, ".safetensors")
    kinds = (kind for beginning, kind in _OTHER_KINDS.items() if re.match(beginning, start))
    raise _unread(path, next(kinds, f"one that starts with {start[:8]!r}, or is damaged there"))


def _unread(path, received):
    return CheckpointError(
        f"{path} is not a checkpoint. Expected a .npz, .safetensors or .keras file, or the folder "
        f"of one. Received: {received}."
    )


def _pickled(path, lines, suffix):
    target = path.with_name(f"{path.stem}-converted{suffix}")
    return CheckpointError(
        f"{path} holds pickles, which can run code when they are opened, and is not read. If you "
        f"trust it, convert it:\n{lines.format(str(path), str(target))}"
    )


def _npz_source(path, archive):
    stated = GRID_COMMENT.fullmatch(archive.comment)
    arrays = {}
    for member in archive.namelist():
        name = member.removesuffix(".npy")
        if name in arrays:
            raise CheckpointError(f"{path} is damaged: it has two arrays called {name}.")
        with reading(path, name), archive.open(member) as file:
            arrays[name] = _array(file, path)
    return Contents(path, arrays, (int(stated[1]), int(stated[2])) if stated else None)


def _array(file, path):
    """Reads a .npy file; takes no more memory than the file, whatever its header claims."""
    first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    if dtype.hasobject:
        raise _pickled(path, _NUMPY_LINES, ".npz")
    array = np.frombuffer(file.read(), dtype)
    # NumPy has no bfloat16: its two bytes come back as an opaque type.
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.fields is None:
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    array = array.reshape(shape, order="F" if is_fortran else "C")
    return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


def _safetensors_source(paths, files=None):
    """Reads one or several safetensors files, beside which a config.json may lie.

    Of several, `files` says which of them has an array.
    """
    arrays = {}
    for path in paths:
        with reading(path):
            from safetensors import safe_open

            file = safe_open(path, "numpy")
            for name in file.keys():  # noqa: SIM118 (not a dict)
                if files and Path(files.get(name, "")).name != path.name:
                    continue
                kind = file.get_slice(name).get_dtype()
                if kind.startswith("F8"):
                    raise CheckpointError(
                        f"Expected arrays of at least 16 bits. Received: {path}, whose {name} is "
                        f"{kind}. Save it as bfloat16 or float32."
                    )
                array = file.get_tensor(name)
                is_float = kind in ("F16", "BF16", "F32", "F64")
                arrays[name] = array.astype(np.float32, copy=False) if is_float else array
    return _with_config(paths[0], arrays)


def _with_config(path, arrays):
    config = json_beside(path, CONFIG) or {}
    with reading(path.with_name(CONFIG)):
        grid, own = stated_grid(config, arrays), stated_head(config)
        own["license"] = stated_license(path, config)
    return Contents(path, arrays, grid, config, own)


def _h5_source(path):
    """Reads a `tf_model.h5` of transformers 4 as PyTorch's file of the same model; None if other.

    Names have two modules of TensorFlow first, kernels are transposed.
    """
    import h5py

    found: dict[str, np.ndarray] = {}

    def visit(place, item):
        if isinstance(item, h5py.Dataset):
            # Data that lie elsewhere, or nowhere, are not read.
            if item.external or item.id.get_storage_size() != item.nbytes:
                raise ValueError(f"the size of {place} is another")
            found[place] = item[()]

    if not h5py.is_hdf5(path):
        return None
    with reading(path), h5py.File(path) as file:
        file.visititems(visit)
    names = {place: _H5_NAME.fullmatch(place) for place in found}
    if not all(names.values()):
        return None
    arrays = {}
    for place, match in names.items():
        array = found[place]
        name = re.sub(r"_\._(\d+)", r".\1", match[1]).replace("/", ".")
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        if match[2] == "kernel":
            array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
        arrays[f"{name}.{_H5_LEAVES[match[2]]}" if match[2] else name] = array
    return _with_config(path, arrays)


def _keras_source(path):
    """Reads the weights of a model saved with `model.save`, under their published names."""
    model = keras.saving.load_model(path, compile=False)
    model, encoder = predicting_model(model), encoder_of(model)
    if not hasattr(model, "arguments"):
        raise CheckpointError(
            f"Expected a .keras file of a model of keras_vit. Received: {path}, of a model around "
            "one or of another. Save the model inside it."
        )
    require_unquantized(model)
    arrays = {weight.name: weight.value() for weight in weights_of(model)}
    names = (*STATED, "classifier")
    own = {name: encoder.arguments[name] for name in names if name in encoder.arguments}
    own |= {name: getattr(model, name) for name in (*OF_HEAD, "license")}
    if isinstance(model, Segmenter):
        own["padding_color"] = model.arguments["padding_color"]
    return Contents(path, arrays, getattr(encoder, "grid_size", None), own=own)


def _library_source(file):
    """Reads the weights of a folder of another library, of which `model_source` found `file`."""
    if file.name == "adapter_config.json":
        raise CheckpointError(f"{file.parent} {ADAPTER}")
    if file.suffix != ".json":
        return read_arrays(file)
    index = json_beside(file, file.name)
    with reading(file):
        files = index["weight_map"]
        names = sorted({Path(each).name for each in files.values()})
        return _safetensors_source([file.with_name(name) for name in names], files)


def write_npz(
    file: Path, arrays: Iterable[tuple[str, np.ndarray]], grid: Grid | None = None
) -> None:
    """Writes arrays by name as an .npz file, and in its comment the grid of the positions."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays:
            member = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date, as NumPy's
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
        if grid is not None:
            # The layout has no array for this, and other readers ignore it.
            archive.comment = f"position grid {grid[0]}x{grid[1]}".encode()


def write_safetensors(file: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes arrays by name as a safetensors file that PyTorch's libraries take."""
    from safetensors.numpy import save_file

    save_file(dict(arrays), file, {"format": "pt"})
