"""The texts inside of what `export` writes: class names, and what goes in and comes out."""

import json
import os
import pathlib
import zipfile
from typing import Any

from keras_vit.predict import ACTIVATIONS
from training.io.text_lines import read_text


def labels_of(path: str | os.PathLike) -> list[str] | None:
    """Returns the class names inside of a TF-Hub module or TFLite file, or None without any.

    Raises:
        ValueError: if they are damaged.
    """
    text = _text(path, "labels.txt")
    return None if text is None else text.splitlines()


def interface_of(path: str | os.PathLike) -> dict[str, Any]:
    """Returns what `export.interface` wrote into a module or TFLite file, or {}.

    Raises:
        ValueError: if it is damaged.
    """
    text = _text(path, "interface.json") or "{}"
    try:
        interface = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(interface, dict):
        raise _damaged(path, "its interface.json is no object")
    if not isinstance(interface.get("preprocessing", ""), str):
        raise _damaged(path, f"its preprocessing is {interface['preprocessing']!r}")
    if interface.get("activation") not in (None, *ACTIVATIONS):
        raise _damaged(path, f"its activation is {interface['activation']!r}")
    return interface


def _damaged(path, reason):
    return ValueError(f"The texts inside of {path} are damaged: {reason}. Export the model again.")


def _text(path, name):
    path = pathlib.Path(path)
    if path.is_dir():
        file = path / "assets" / name
        try:
            return read_text(file) if file.is_file() else None
        except ValueError as error:
            raise _damaged(path, error) from error
    if not zipfile.is_zipfile(path):
        # The texts are an archive behind the model, and their names outlive its end.
        if any(each in path.read_bytes() for each in (b"labels.txt", b"interface.json")):
            raise _damaged(path, "the end of the file is missing")
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name).decode("utf-8") if name in archive.namelist() else None
    except Exception as error:
        # A damaged archive fails in many ways, depending on which byte it is.
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
