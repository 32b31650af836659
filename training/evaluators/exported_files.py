"""Exported files: the texts inside of modules and TFLite files."""

import json
import os
import pathlib
import zipfile
from typing import Any

from keras_vit.models.image_model import ACTIVATIONS
from keras_vit.training.errors import damage_named
from keras_vit.training.io.paths import read_text
from keras_vit.unpacking import open_archive

# Names of the texts inside of exported files, which `export` writes.
LABELS_FILE = "labels.txt"
INTERFACE_FILE = "interface.json"


def labels_of(path: str | os.PathLike) -> list[str] | None:
    """Returns the class names inside of a TF-Hub module or TFLite file, or None without any.

    Raises:
        ValueError: if they are damaged.
    """
    return _inside(pathlib.Path(path), LABELS_FILE, str.splitlines)


def interface_of(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the `interface.json` inside of a module or TFLite file, or {}.

    Raises:
        ValueError: if it is damaged.
    """
    return _inside(pathlib.Path(path), INTERFACE_FILE, _interface) or {}


def _inside(path, name, parse):
    """Returns the text of that name inside of an exported file, parsed, or None without one."""
    with damage_named(f"The texts inside of {path} are damaged"):
        if path.is_dir():
            file = path / "assets" / name
            return parse(read_text(file)) if file.is_file() else None
        if zipfile.is_zipfile(path):
            with path.open("rb") as stream, open_archive(stream) as archive:
                found = name in archive.namelist()
                return parse(archive.read(name).decode("utf-8")) if found else None
        # The texts are an archive behind the model, and their names outlive its end.
        if any(each.encode() in path.read_bytes() for each in (LABELS_FILE, INTERFACE_FILE)):
            raise ValueError("the end of the file is missing")


def _interface(text):
    interface = json.loads(text)
    if not isinstance(interface, dict):
        raise ValueError("its interface.json is no object")
    if not isinstance(interface.get("preprocessing", ""), str):
        raise ValueError(f"its preprocessing is {interface['preprocessing']!r}")
    if interface.get("activation") not in (None, "none", *ACTIVATIONS):
        raise ValueError(f"its activation is {interface['activation']!r}")
    return interface
