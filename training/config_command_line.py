"""Configs on the command line: `--config=FILE[:ARGUMENT]` and `--config.KEY=VALUE`.

FILE is a Python file, or the name of one of the package's own configs: `quickstart`,
`finetune:ViT-B/16,cifar10`. Their paths in the repository, `training/configs/quickstart.py`, find
them from any folder; a file of the user's at that path comes first.
"""

import ast
import pathlib
import re
import runpy
from collections.abc import Sequence
from typing import Any, cast

from ml_collections import ConfigDict

from training.errors import TrainingError, UsageError, did_you_mean
from training.io.quiet_start import import_tensorflow, quiet_start

_OWN = pathlib.Path(__file__).parent / "configs"
_OVERRIDE = re.compile(r"--?config\.([^=]+)(?:=(.*))?", re.DOTALL)


def load_config(text: str) -> ConfigDict:
    """Returns what `get_config(ARGUMENT)` of `FILE[:ARGUMENT]` returns, a `ConfigDict`.

    Args:
        text: of `--config`; FILE is a path or the name of one of the package's configs.

    Raises:
        UsageError: if the file cannot be run or its function takes no such argument.
        TrainingError: if a store that it reads fails.
    """
    path, _, argument = text.partition(":")
    try:
        with quiet_start():
            module = runpy.run_path(_file_of(path))
            if "get_config" not in module:
                raise UsageError(f"The config {path} defines no function get_config.")
            config = module["get_config"](*([argument] if argument else []))
    except TrainingError:
        raise
    except Exception as error:
        # The file is a program of the user's, and may fail in any way.
        raise UsageError(
            f"The config {text} cannot be read: {_one_line(error)} ({type(error).__name__})"
        ) from error
    if not isinstance(config, ConfigDict):
        raise UsageError(
            f"get_config of {path}: expected an ml_collections.ConfigDict. "
            f"Received: {type(config).__name__}."
        )
    return config


def _file_of(path):
    """Returns the user's file of that path, else the package's config of that path or name."""
    file = pathlib.Path(path)
    if file.is_file():
        return path
    own = {
        file.stem: file
        for file in _OWN.glob("*.py")
        if re.search("^(def )?get_config", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    found = own.get(path.removeprefix("training/configs/").removesuffix(".py"))
    if not found or path not in (found.stem, f"training/configs/{found.name}"):
        raise UsageError(
            f"The config {path} cannot be read: No such file. Expected a Python file with "
            f"get_config(ARGUMENT), or one of {', '.join(sorted(own))}."
        )
    return str(found)


def override(config: ConfigDict, arguments: Sequence[str]) -> ConfigDict:
    """Returns a copy of `config` with the values of `--config.KEY=VALUE` arguments.

    A value has the type of the one it replaces, which for an argument of the model's constructor
    that the config does not give is its default; a flag without `=VALUE` is true.

    Raises:
        UsageError: for an unknown key or a value of another type.
    """
    config = config.copy_and_resolve_references()
    for argument in arguments:
        key, value = cast(re.Match, _OVERRIDE.fullmatch(argument)).groups()
        *parents, name = key.split(".")
        owner: Any = config
        for parent in parents:
            owner = owner.get(parent) if isinstance(owner, ConfigDict) else None
        known = owner if isinstance(owner, ConfigDict) else config
        if parents == ["model"] and name not in owner:
            known = _defaults_of_model(owner) | owner.to_dict()
        if not isinstance(owner, ConfigDict) or name not in known:
            hint = did_you_mean(name, known, "".join(f"{parent}." for parent in parents))
            raise UsageError(
                f"Unknown config key {key}.{hint or ' Known keys: ' + ', '.join(sorted(known))}"
            )
        before = known[name]
        try:
            owner[name] = _converted("true" if value is None else value, before)
        except (KeyError, ValueError, SyntaxError, TypeError) as error:
            raise UsageError(
                f"--config.{key}: expected a {type(before).__name__} such as {before!r}. "
                f"Received: {value}"
            ) from error
    return config


def _defaults_of_model(model):
    import_tensorflow()
    from training.recipes.models import default_arguments

    return default_arguments(model.get("name", ""))


def _converted(text, before):
    if isinstance(before, ConfigDict):
        raise ValueError("a whole section cannot be replaced")
    if isinstance(before, bool):
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    if isinstance(before, str):
        return text
    if isinstance(before, int | float):
        return type(before)(float(text)) if _is_whole(text, before) else type(before)(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if before is None:
            return text
        raise


def _is_whole(text, before):
    """Whether an int is written like `1e4`."""
    return isinstance(before, int) and "e" in text.lower() and float(text).is_integer()


def _one_line(error):
    return " ".join(str(error).split())
