"""Reads what a source says of its model before that is built: run, earlier runs, arguments.

It imports no Keras, so that commands and configs answer at once.
"""

import json
import logging
import os
import pathlib
import shlex
from collections.abc import Iterator
from typing import Any

from keras_vit.checkpoints.model_source import Kind, model_source
from keras_vit.errors import damage_named
from keras_vit.files.zip_archives import saved_config

from .config import schema
from .data.sets import fingerprint
from .data.sets.known_datasets import DATASETS, OF_PHOTOS, full_name
from .engine.checkpoints import steps
from .io.image_listing import EXTENSIONS
from .io.paths import any_path, read_path

logger = logging.getLogger("keras_vit")

# Keras adds these to the arguments of a saved model.
_KERAS_KEYS = {"name", "trainable", "trainable_layers", "quantized_layers", "dtype"}
_KERAS_KEYS |= {"class_names", "preprocessing", "activation", "license", "thresholds"}


def read_run_config(file: str | os.PathLike) -> dict[str, Any]:
    """Returns the `config.json` of a run as nested dicts; keys of other versions stay in it.

    Raises ValueError if it is not JSON, or a key has a value of the wrong type.
    """
    try:
        config = json.loads(any_path(file).read_text(encoding="utf-8"))
        wrong = schema.damage(config)
        if not wrong and not fingerprint.is_description(config.get("data")):
            wrong = "data, what the run was trained on, is missing or incomplete"
    except (ValueError, RecursionError) as error:
        wrong = str(error)
    if wrong:
        raise ValueError(
            f"Expected the config of a run. {file} is damaged: {wrong}. Restore it, or use another "
            "directory."
        )
    return config


def runs_behind(source: str | os.PathLike) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (name, `config.json`) of the run that a source is, and of those that it began from.

    Nothing for what is neither a run directory nor a `.keras` or exported file in one, such as a
    published name; a warning names what a run began from that is gone, or another now. Raises as
    `read_run_config`.
    """
    name, seen, digest = str(source), [], ""
    while name and name not in seen:
        seen.append(name)
        if digest and digest != fingerprint.digest_of_checkpoint(name):
            said = "It cannot be told what trained %s, from which %s began: it is gone, or another."
            logger.warning(said, *reversed(seen[-2:]))
            return
        path = any_path(name)
        is_file = path.suffix == ".keras" or model_source(path).is_exported
        folder = path.parent if is_file else path
        if not all((folder / file).is_file() for file in ("config.json", "metrics.csv")):
            return
        config = read_run_config(folder / "config.json")
        yield name, config
        # A published name has no digest.
        name, digest = config.get("checkpoint", ""), config["data"].get("checkpoint", "")


def saved_model(path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Returns the class and the arguments of the model in a `.keras` file, which is not built.

    Raises ValueError if the file is damaged.
    """
    expected = "Expected a .keras file, which is a zip archive with a config.json"
    failure = f"{expected}. {path} is damaged or of another kind"
    with damage_named(failure, "Save the model again, with model.save()."):
        saved = saved_config(path)
        return str(saved.get("registered_name") or saved["class_name"]), dict(saved["config"])


def saved_arguments(source: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the arguments of the model of a run, `.keras` file, or folder of another library.

    It is not built. They are those of `keras_vit.VisionTransformer`, or with a `name` of
    `keras_vit.create_model`; None if `source` is none of these. Raises ValueError if there is no
    such `.keras` file, or it holds a model of another class, or the folder is damaged.
    """
    path = any_path(source)

    def read():
        if config := model_source(path).run_config:
            arguments = read_run_config(config)["model"]
            return {key: arguments[key] for key in arguments if key not in schema.NOT_OF_MODEL}
        if model_source(path).kind is Kind.LIBRARY_FOLDER:
            from keras_vit.checkpoints.library_folder import read_library_folder  # imports Keras

            return read_library_folder(path)[1]
        if path.suffix != ".keras":
            return None
        if not path.is_file():
            raise ValueError(f"Expected a .keras file. There is nothing at {path}.")
        kind, arguments = saved_model(path)
        if kind != "keras_vit>VisionTransformer":
            raise ValueError(
                f"Expected a saved keras_vit.VisionTransformer. Received: {path}, a {kind}."
            )
        return {key: value for key, value in arguments.items() if key not in _KERAS_KEYS}

    return read_path(path, read)


def unfinished(run: Any) -> str:
    """Says where a run directory without model.keras stands, and how to get a model of it."""
    step = max(steps(run / "checkpoints"), default=0)
    said = f"at step {step:,}: the same command resumes it"
    if step:
        said += f", and keras-vit train --workdir={shlex.quote(str(run))} --finish ends it now"
    if (run / "best.keras").exists():
        said += f"; {run / 'best.keras'} has the model of its best evaluation so far"
    return said


def runs_in(folder: Any) -> list[Any]:
    """Returns the run directories in a folder that is none itself, by name."""
    is_run = (folder / "config.json").exists()
    return [] if is_run else sorted(file.parent for file in folder.glob("*/config.json"))


def runs_inside(folder: Any) -> str:
    """Names the first three run directories in a folder, for a message; empty for none."""
    found = ", ".join(str(run) for run in runs_in(folder)[:3])
    return f"; runs in it: {found}" if found else ""


def without_model(source: str | os.PathLike) -> str:
    """Says what a source is that holds no model of Keras, for a message."""
    name, found = str(source), model_source(source)
    if full_name(name) in DATASETS or name.startswith((*OF_PHOTOS, "tfds:")):
        return "a data set, in the model's place: --dataset names it"
    if found.kind is Kind.UNFINISHED_RUN:
        return f"a run unfinished {unfinished(found.path)}"
    if found.path.is_dir():
        return f"a folder without model.keras{runs_inside(found.path)}"
    is_image = found.path.suffix.lower() in EXTENSIONS and found.path.exists()
    return "an image" if is_image else found.kind.value
