"""Tells what the source of a model is: a run, a saved model, a checkpoint or an exported model."""

import dataclasses
import enum
import os
import pathlib
from typing import Any

from keras_vit.checkpoints.published_weights import url_of

# Before the USER/NAME of a repository of Hugging Face.
HUGGING_FACE = "hf://"
# The file that every web page of ours has in its folder.
WEB_PAGE_FILE = "code/runtime.js"


class Kind(enum.Enum):
    """The kinds of sources; the values are for messages."""

    RUN = "a run directory with model.keras"
    UNFINISHED_RUN = "a run without model.keras, which is unfinished"
    KERAS = "a .keras file"
    CHECKPOINT = "a file of arrays"
    LIBRARY_FOLDER = "a folder of Hugging Face or timm"
    HUB = "a TF-Hub module"
    TFLITE = "a .tflite file"
    ONNX = "an .onnx file"
    WEB_PAGE = "a web page"
    PUBLISHED = "the name of a published checkpoint"
    HUGGING_FACE = "a repository of Hugging Face"
    FOLDER = "a folder without a model"
    NOTHING = "which does not exist"


# The first of these files that a folder holds tells its kind. A run's config.json comes last, as
# other libraries have one of their own beside their weights.
_FILES = {
    "saved_model.pb": Kind.HUB,
    WEB_PAGE_FILE: Kind.WEB_PAGE,
    "model.keras": Kind.RUN,
    "adapter_config.json": Kind.LIBRARY_FOLDER,
    "model.safetensors": Kind.LIBRARY_FOLDER,
    "model.safetensors.index.json": Kind.LIBRARY_FOLDER,
    "tf_model.h5": Kind.LIBRARY_FOLDER,
    "pytorch_model.bin": Kind.LIBRARY_FOLDER,
    "config.json": Kind.UNFINISHED_RUN,
}
_SUFFIXES = {
    ".keras": Kind.KERAS,
    ".tflite": Kind.TFLITE,
    ".onnx": Kind.ONNX,
    ".html": Kind.WEB_PAGE,
}


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A source and its kind.

    Attributes:
        kind: one of `Kind`.
        path: of the file or folder, `pathlib.Path` or one of a store.
        file: the file that shows the kind: of a run its model.keras, of a file `path`. None where
            there is nothing, and of a published name.
    """

    kind: Kind
    path: Any
    file: Any = None

    @property
    def is_exported(self) -> bool:
        """Tells whether it is a module, a file or a page that an export wrote."""
        return self.kind in (Kind.HUB, Kind.TFLITE, Kind.ONNX, Kind.WEB_PAGE)

    @property
    def is_keras(self) -> bool:
        """Tells whether `file` is a `.keras` file, of a run or alone."""
        return self.kind in (Kind.RUN, Kind.KERAS)

    @property
    def run_config(self) -> Any:
        """The config.json of a run directory, finished or not, or None."""
        file = self.path / "config.json"
        is_run = self.kind in (Kind.RUN, Kind.UNFINISHED_RUN) and file.is_file()
        return file if is_run else None


def model_source(source: str | os.PathLike) -> ModelSource:
    """Returns the kind of a source. Looks at names alone, and opens no file.

    Args:
        source: a path, a path of a store such as `etils.epath.Path`, a published name, or
            hf://USER/NAME. A path that exists comes before a name.
    """
    path: Any = source if hasattr(source, "is_dir") else pathlib.Path(source)
    if path.is_dir():
        found = (ModelSource(_FILES[n], path, path / n) for n in _FILES if (path / n).exists())
        return next(found, ModelSource(Kind.FOLDER, path))
    if path.exists():
        return ModelSource(_SUFFIXES.get(path.suffix.lower(), Kind.CHECKPOINT), path, path)
    if os.fspath(source).startswith(HUGGING_FACE):
        return ModelSource(Kind.HUGGING_FACE, path)
    return ModelSource(Kind.PUBLISHED if url_of(os.fspath(source)) else Kind.NOTHING, path)
