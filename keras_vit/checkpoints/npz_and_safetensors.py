"""Files of arrays, opened without running anything that they contain.

A source lists its arrays' shapes from the file's headers alone, so that a file
is compared with a model before any of its data is read.
"""

import contextlib
import json
import math
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np

from keras_vit.checkpoints.official_names import weights_of
from keras_vit.unpacking import open_archive

# The most that deflate can compress.
COMPRESSION_LIMIT = 1032

# Arguments of a model that the arrays' shapes do not show.
STATED = ("num_heads", "gelu", "layer_norm_epsilon")

# The grid of position embeddings that are not square, in the archive's comment.
GRID_COMMENT = re.compile(rb"position grid (\d+)x(\d+)")


class CheckpointError(ValueError):
    """A checkpoint is damaged or does not fit the model; the model is unchanged.

    Attributes:
        missing: names of arrays that the model needs and the file lacks.
        left_over: names of arrays in the file that the model has no place for.
        mis_shaped: names of arrays whose shape in the file is not the model's.
    """

    def __init__(
        self,
        message: str,
        missing: Iterable[str] = (),
        left_over: Iterable[str] = (),
        mis_shaped: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.missing = tuple(missing)
        self.left_over = tuple(left_over)
        self.mis_shaped = tuple(mis_shaped)


class Source(Protocol):
    """The arrays of a checkpoint, by name."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    numeric: set[str]  # the names of arrays of floating-point numbers
    grid: tuple[int, int] | None  # (rows, columns) of its position embeddings if it states them
    config: Mapping[str, Any]  # its config.json, or of a saved model its `STATED` arguments

    def read(self, name: str) -> np.ndarray:
        """Returns an array as float32."""


def open_source(path: str | os.PathLike) -> Source:
    """Opens a .npz, .safetensors or .keras file.

    Or a directory that Hugging Face's `save_pretrained` wrote, or a run directory of `keras-vit`.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointError: if the file is damaged or of another kind.
    """
    path = Path(path)
    if path.is_dir():
        return _open_directory(path)
    with open(path, "rb") as file:
        start = file.read(9)
    if start[:4] == b"PK\x03\x04":
        with _reading(path):
            is_keras = "model.weights.h5" in zipfile.ZipFile(path).namelist()
        return KerasSource(path) if is_keras else NpzSource(path)
    if start[8:] == b"{":
        return SafetensorsSource([path])
    raise CheckpointError(
        f"{path} is not a checkpoint, or it is damaged at its start. Expected a .npz, "
        f".safetensors or .keras file; received one that starts with {start[:8]!r}. Pickled "
        "files (.pt, .pth, .pkl) can run code when they are opened and are not read."
    )


class NpzSource(Source):
    """The arrays of a NumPy archive. Pickled arrays are refused."""

    config: Mapping[str, Any] = {}

    def __init__(self, path: Path) -> None:
        self.path = path
        with _reading(path):
            self._archive = zipfile.ZipFile(path)
        stated = GRID_COMMENT.fullmatch(self._archive.comment)
        self.grid = (int(stated[1]), int(stated[2])) if stated else None
        self.shapes, self._dtypes = {}, {}
        for member in self._archive.namelist():
            name = member.removesuffix(".npy")
            with _reading(path, name), self._archive.open(member) as file:
                self.shapes[name], self._dtypes[name] = self._header(name, file)
        self.numeric = {
            name for name, dtype in self._dtypes.items() if dtype.kind == "f" or _is_bfloat16(dtype)
        }

    def _header(self, name, file):
        first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise CheckpointError(
                f"{self.path} holds pickled Python objects under {name!r}. They can run code "
                "when they are opened, so they are never loaded."
            )
        if min(shape, default=0) < 0:
            raise ValueError(f"its shape is {shape}")
        return shape, dtype

    def read(self, name: str) -> np.ndarray:
        with _reading(self.path, name), self._archive.open(f"{name}.npy") as file:
            packed = self._archive.getinfo(f"{name}.npy").file_size
            claimed = math.prod(self.shapes[name]) * self._dtypes[name].itemsize
            # Before memory is allocated for it.
            if not claimed <= packed <= COMPRESSION_LIMIT * self.path.stat().st_size:
                raise ValueError(
                    f"it claims {claimed} bytes, its member of the archive {packed}, and the file "
                    f"has {self.path.stat().st_size}"
                )
            array = np.lib.format.read_array(file, allow_pickle=False)
            if file.read(1):
                raise ValueError("there is more data than the array's header says")
        if _is_bfloat16(array.dtype):
            bits = array.view(np.uint16).astype(np.uint32) << 16
            return bits.view(np.float32)
        return array.astype(np.float32, copy=False)


class SafetensorsSource(Source):
    """The tensors of one or several safetensors files, beside which a config.json may lie."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.path = paths[0]
        self.config = json_beside(self.path, "config.json") or {}
        with _reading(self.path.with_name("config.json")):
            self.grid = _grid_of_config(self.config)
        self._files, self.shapes, self.numeric = {}, {}, set()
        for path in paths:
            with _reading(path):
                from safetensors import safe_open

                file = safe_open(path, "numpy")
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    tensor = file.get_slice(name)
                    self.shapes[name] = tuple(tensor.get_shape())
                    self._files[name] = file
                    if tensor.get_dtype() in ("F16", "BF16", "F32", "F64"):
                        self.numeric.add(name)

    def read(self, name: str) -> np.ndarray:
        with _reading(self.path, name):
            return self._files[name].get_tensor(name).astype(np.float32, copy=False)


class KerasSource(Source):
    """The weights of a model saved with `model.save`, under their published names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _reading(path), open(path, "rb") as file, open_archive(file):
            model = keras.saving.load_model(path, compile=False)
        # Self-supervised pre-training saves its encoder and more.
        model = getattr(model, "encoder", model)
        self._weights = {weight.name: weight for weight in weights_of(model)}
        self.shapes = {name: tuple(weight.shape) for name, weight in self._weights.items()}
        self.numeric = set(self.shapes)
        self.grid = getattr(model, "grid_size", None)
        self.config = {name: model.arguments[name] for name in STATED if name in model.arguments}

    def read(self, name: str) -> np.ndarray:
        return self._weights[name].value()


def _open_directory(path):
    if (path / "model.keras").exists():
        return KerasSource(path / "model.keras")
    if (path / "model.safetensors").exists():
        return SafetensorsSource([path / "model.safetensors"])
    index = json_beside(path / "model.safetensors", "model.safetensors.index.json")
    if index is not None:
        with _reading(path / "model.safetensors.index.json"):
            files = sorted(set(index["weight_map"].values()))
            return SafetensorsSource([path / Path(file).name for file in files])
    raise CheckpointError(
        f"{path} holds no checkpoint. Expected a directory with model.keras, model.safetensors "
        "or model.safetensors.index.json."
    )


def json_beside(path: str | os.PathLike, name: str) -> dict[str, Any] | None:
    """Returns the object in a JSON file of a checkpoint's folder, or None if there is no file.

    Raises:
        CheckpointError: if it is damaged.
    """
    file = Path(path).with_name(name)
    if not file.exists():
        return None
    with _reading(file):
        found = json.loads(file.read_text())
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, received {type(found).__name__}")
        return found


def _grid_of_config(config):
    image, patch = config.get("image_size"), config.get("patch_size")
    if not isinstance(image, list) or not isinstance(patch, int):
        return None
    if len(image) != 2 or patch < 1 or not all(isinstance(size, int) for size in image):
        raise ValueError(f"image_size={image} and patch_size={patch} are no grid")
    return image[0] // patch, image[1] // patch


def _is_bfloat16(dtype):
    # NumPy has no bfloat16: its two bytes come back as an opaque type.
    return dtype.kind == "V" and dtype.itemsize == 2 and dtype.fields is None


@contextlib.contextmanager
def _reading(path, name=None):
    """Turns what a damaged file raises, any kind of error, into a `CheckpointError`."""
    try:
        yield
    except (CheckpointError, FileNotFoundError):
        raise
    except Exception as error:
        what = f"Array {name!r} of {path}" if name else str(path)
        raise CheckpointError(
            f"{what} is damaged or truncated ({error}). Download or write the file again."
        ) from error
