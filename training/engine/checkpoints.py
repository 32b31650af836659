"""The last states of a run: whole, few, verified, and the same for every backend and mesh.

`checkpoint-STEP/` holds `part-N.safetensors` of every process that writes, and `manifest.json`,
which is written last: the step, shapes and dtypes of the arrays, digests of the parts. A part has
whole arrays under their names, and the pieces of divided arrays under `NAME@START,START,...`.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import logging
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..errors import TrainingError, first_line

logger = logging.getLogger("keras_vit")

_PREFIX = "checkpoint-"
# Names that are written here, of unfinished and damaged states too. Other files are left alone.
OURS = re.compile(rf"(\.|damaged-|){_PREFIX}(0|[1-9][0-9]*)")
_MANIFEST = "manifest.json"
# Errors of reading a damaged state.
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError)


class Shards(NamedTuple):
    """An array in pieces: those that this process writes, or all that were written."""

    shape: tuple[int, ...]  # of the whole array, as the dtype
    dtype: np.dtype
    # (start along each axis, values): an array, or a slice of a file that is not read yet.
    pieces: list[tuple[tuple[int, ...], Any]]

    def read(self, index: Sequence[slice] | None = None) -> np.ndarray:
        """Returns the array, or what `index` slices; raises ValueError if pieces are missing."""
        index = [slice(None)] * len(self.shape) if index is None else index
        bounds = [each.indices(size)[:2] for each, size in zip(index, self.shape, strict=True)]
        first, end = np.array(bounds, int).reshape(-1, 2).T
        result, found = np.empty(end - first, self.dtype), 0
        for starts, stored in self.pieces:
            # The part that piece and slice share.
            low = np.maximum(first, starts)
            high = np.minimum(end, np.add(starts, stored.get_shape()))
            if (low < high).all():
                values = stored[tuple(map(slice, low - starts, high - starts))]
                result[tuple(map(slice, low - first, high - first))] = values.view(self.dtype)
                found += values.size
        if found != result.size:
            raise ValueError("pieces of an array are missing")
        return result


def whole(array: np.ndarray) -> Shards:
    """Returns an array that this process writes alone."""
    return Shards(array.shape, array.dtype, [((0,) * array.ndim, array)])


class Checkpoints:
    """Saves and finds the states of a run in a folder.

    A state is written by a thread, under a hidden name, and is renamed once it is complete, so
    that a killed process leaves the one before.

    Args:
        directory: `checkpoints/` of the run; created by the first save.
        keep: number of states kept.
        part: this process's number among those that write states, or None. 0 completes them.
        parts: how many processes write.

    Attributes:
        saved_step: int, the last step that is known to be saved, or None.
    """

    def __init__(
        self, directory: str | os.PathLike, keep: int = 2, part: int | None = 0, parts: int = 1
    ):
        self.directory = pathlib.Path(directory).absolute()
        self.saved_step: int | None = None
        self._keep, self._part, self._parts = keep, part, parts
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._pending: tuple[int, concurrent.futures.Future] | None = None

    def newest(self) -> int | None:
        """Returns the step of the newest state whose files are as they were written; for process 0.

        Damaged states are set aside under another name, with a line in the log, and unfinished
        states of killed processes are removed. Raises `TrainingError` if every state is damaged.
        """
        for unfinished in steps(self.directory, "."):
            _remove(self._path(unfinished, "."))
        damaged: list[pathlib.Path] = []
        for step in reversed(steps(self.directory)):
            path = self._path(step)
            try:
                manifest = _manifest(path)
                if manifest["step"] != step:
                    raise ValueError(f"it is that of step {manifest['step']}")
                for part, digest in manifest["parts"].items():
                    if _digest(path / part) != digest:
                        raise ValueError(f"{part} is not as it was written")
            except _DAMAGE as error:
                message = "The checkpoint %s cannot be read (%s). Using the one before."
                logger.error(message, path, first_line(error))
                damaged.append(path)
                continue
            for old in damaged:
                aside = old.with_name(f"damaged-{old.name}")
                _remove(aside)  # left where that step was damaged before
                old.rename(aside)
            self.saved_step = step
            return step
        if damaged:
            raise TrainingError(
                f"None of the checkpoints in {self.directory} can be read: "
                f"{', '.join(path.name for path in damaged)}. Move the folder away to start anew."
            )
        return None

    def save(self, step: int, take: Callable[[], Mapping[str, Shards]]) -> None:
        """Starts to save the state of a step, unless it is saved, once the one before is complete.

        `take` returns copies of the arrays by name, the same names in all processes. Raises
        `TrainingError` if the state before could not be written.
        """
        self.wait()
        if step == self.saved_step:
            return
        if self._part is None:
            self.saved_step = step
            return
        self._pending = step, self._thread.submit(self._write, step, take())

    def wait(self) -> None:
        """Waits until the last state is complete.

        Raises `TrainingError` if it cannot be written; earlier states are untouched.
        """
        if self._pending is None:
            return
        (step, future), self._pending = self._pending, None
        try:
            future.result()
        except (OSError, SafetensorError) as error:
            shutil.rmtree(self._path(step, "."), ignore_errors=True)
            failure = f"The checkpoint of step {step} cannot be written to {self.directory}"
            if self.saved_step == step:
                failure = f"Checkpoints before step {step} cannot be removed from {self.directory}"
            raise TrainingError(
                f"{failure}: {first_line(error)}. {self.last_good()} Make room, or let the folder "
                "be changed, and run the same command again."
            ) from error

    def last_good(self) -> str:
        """Returns a sentence that names the last saved step."""
        if self.saved_step is None:
            return "There is no earlier checkpoint."
        return f"The last good checkpoint is that of step {self.saved_step}."

    def _write(self, step, arrays):
        path, staging = self._path(step), self._path(step, ".")
        staging.mkdir(parents=True, exist_ok=True)
        part = staging / f".part-{self._part}"
        save_file(_pieces(arrays), part)
        # Its name tells process 0 that it is complete, and the digest.
        part.rename(staging / f"part-{self._part}.{_digest(part)}")
        if self._part == 0:
            self._complete(step, arrays)
        else:
            _wait_until(path.exists)
        self.saved_step = step

    def _complete(self, step, arrays):
        path, staging = self._path(step), self._path(step, ".")
        _wait_until(lambda: len(list(staging.glob("part-*"))) == self._parts)
        digests = {}
        for part in sorted(staging.glob("part-*")):
            file = part.with_suffix(".safetensors")
            part.rename(file)
            digests[file.name] = part.suffix[1:]
        described = {name: [each.dtype.name, each.shape] for name, each in arrays.items()}
        content = {"step": step, "arrays": described, "parts": digests}
        (staging / _MANIFEST).write_text(_signed(content))
        staging.rename(path)
        self.saved_step = step
        # Others may be put there, later ones or of another program.
        until_now = [each for each in steps(self.directory) if each <= step]
        written = [each for each in until_now if (self._path(each) / _MANIFEST).exists()]
        for old in written[: -self._keep]:
            # Hidden first, as a state that is half removed would look damaged.
            with contextlib.suppress(FileNotFoundError):
                _remove(self._path(old).rename(self._path(old, ".")))

    def _path(self, step, prefix=""):
        return self.directory / f"{prefix}{_PREFIX}{step}"


def steps(directory: str | os.PathLike, kind: str = "") -> list[int]:
    """Returns the steps of the states in a folder, in order; of unfinished ones for `kind` "."."""
    folders = (path for path in pathlib.Path(directory).glob("*") if path.is_dir())
    found = filter(None, (OURS.fullmatch(path.name) for path in folders))
    return sorted(int(each[2]) for each in found if each[1] == kind)


def _remove(path):
    """Removes a state, unless it is gone; of one that stands elsewhere, the link."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink() if path.is_symlink() else shutil.rmtree(path)


def read(directory: str | os.PathLike, step: int) -> dict[str, Shards]:
    """Returns the arrays of a state by name, not read yet; raises `TrainingError` if damaged."""
    path = pathlib.Path(directory) / f"{_PREFIX}{step}"
    try:
        manifest = _manifest(path)
        arrays = {
            name: Shards(tuple(shape), np.dtype(dtype), [])
            for name, (dtype, shape) in manifest["arrays"].items()
        }
        for part in manifest["parts"]:
            file: Any = safe_open(path / part, framework="numpy")
            for key in list(file.keys()):
                name, _, starts = (key, "", "") if key in arrays else key.rpartition("@")
                start = map(int, starts.split(",")) if starts else [0] * len(arrays[name].shape)
                arrays[name].pieces.append((tuple(start), file.get_slice(key)))
    except _DAMAGE as error:
        raise TrainingError(
            f"The checkpoint {path} cannot be read: {first_line(error)}."
        ) from error
    return arrays


def _pieces(arrays):
    """Returns {key: array} of the pieces, in dtypes that NumPy has by itself."""
    found = {}
    for name, (shape, dtype, pieces) in arrays.items():
        for starts, values in pieces:
            key = name if values.shape == shape else f"{name}@{','.join(map(str, starts))}"
            values = np.ascontiguousarray(values).reshape(values.shape)
            found[key] = values.view(np.uint16) if dtype.name == "bfloat16" else values
    return found


def _wait_until(there):
    # The watch of the other processes ends this one if they never come.
    while not there():
        time.sleep(0.05)


def _digest(path):
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while chunk := stream.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def _signed(content):
    text = json.dumps(content, sort_keys=True)
    return json.dumps([hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), content])


def _manifest(path):
    text = (path / _MANIFEST).read_text(encoding="utf-8")
    _, content = json.loads(text)
    if _signed(content) != text:
        raise ValueError(f"{_MANIFEST} is not as it was written")
    return content
