"""Configs on the command line: `--config=FILE[:ARGUMENT]` and `--config.KEY=VALUE`.

FILE is a Python file, or the name of one of the package's own configs: `quickstart`,
`finetune:ViT-B/16,cifar10`; a file of the user's of that name comes first.
"""

import argparse
import ast
import inspect
import pathlib
import re
import runpy
import traceback
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict, config_dict

from keras_vit.name_suggestions import did_you_mean

from ..errors import TrainingError, UsageError
from ..io.quiet_start import quiet_start
from . import schema
from .schema import DEFAULTS

_OURS = pathlib.Path(__file__).parents[1] / "configs"
_HAS = re.compile("^(def )?get_config", re.MULTILINE)
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def load_config(text: str) -> ConfigDict:
    """Returns what `get_config(ARGUMENT)` of `FILE[:ARGUMENT]` returns, a `ConfigDict`.

    Raises `UsageError` for a wrong argument, or if the user's file fails, whose traceback is
    printed before; the package's configs also `TrainingError` or `OSError` of a store that fails.
    """
    path, _, argument = text.partition(":")
    file = _file_of(path)
    try:
        with quiet_start():
            module = runpy.run_path(file)
            if "get_config" not in module:
                raise UsageError(f"The config {path} defines no function get_config.")
            get_config, arguments = module["get_config"], [argument] if argument else []
            try:
                inspect.signature(get_config).bind(*arguments)
            except TypeError as error:
                form = f"{path}{'' if arguments else ':ARGUMENT'}, as its first lines explain"
                raise UsageError(f"Expected --config={form}. Received: {text}.") from error
            config = get_config(*arguments)
    except Exception as error:
        is_ours = pathlib.Path(file).parent == _OURS
        if is_ours and isinstance(error, ValueError):
            raise UsageError(f"--config={text}: {error}") from error
        if is_ours or isinstance(error, TrainingError):
            raise
        traceback.print_exc()
        reason = f"{' '.join(str(error).split())} ({type(error).__name__})"
        raise UsageError(f"The config {text} cannot be read: {reason}") from None
    if not isinstance(config, ConfigDict):
        raise UsageError(
            f"get_config of {path}: expected an ml_collections.ConfigDict. "
            f"Received: {type(config).__name__}."
        )
    return config


def _file_of(path):
    """Returns the user's file of that path, else the package's config of that name."""
    if pathlib.Path(path).is_file():
        return path
    ours = {each.stem: each for each in _OURS.glob("*.py") if _HAS.search(each.read_text("utf-8"))}
    if path not in ours:
        raise UsageError(
            f"{did_you_mean(path, ours)}Expected a Python file with get_config(ARGUMENT), or one "
            f"of {', '.join(sorted(ours))}. Received: {path}, no such file."
        )
    return str(ours[path])


def config_of(options: argparse.Namespace, config: ConfigDict | None = None) -> ConfigDict:
    """Returns the complete config that the options of `CommandParser.add_run` describe.

    `config` takes the place of the one that --config names. Raises `UsageError` for an unknown key
    or a wrong value; and as `load_config`.
    """
    config = load_config(options.config) if config is None else config
    data_dir = [f"--config.data_dir={options.data_dir}"] if options.data_dir else []
    return schema.complete(override(config, [*data_dir, *options.overrides]))


def refuse_chosen(overrides: Sequence[str], *keys: str) -> None:
    """Raises `UsageError` for overrides of keys that a protocol sets, naming the option to use."""
    options = {"optimizer.base_lr": "--rates", "seed": "--seeds", "dataset": "--tasks"}
    for name in {each.partition("=")[0].removeprefix("--config.") for each in overrides} & {*keys}:
        instead = f" Give {options[name]} in its place." if name in options else ""
        raise UsageError(f"Leave out --config.{name}: this protocol sets it in each run.{instead}")


def override(config: ConfigDict, arguments: Sequence[str]) -> ConfigDict:
    """Returns a copy of `config` with the values of `--config.KEY=VALUE` arguments.

    A value has the type of the key's default. An argument of the model's constructor, which checks
    it, is a value as Python writes it, else text. A flag alone is true; `epochs` and `total_steps`
    replace each other. Raises `UsageError` for an unknown key, a value of another type, or both of
    those lengths.
    """
    try:
        flat = schema.flatten(config.to_dict())
    except config_dict.RequiredValueError as error:
        raise UsageError("Expected the config to fill in each required_placeholder.") from error
    names = []
    for argument in arguments:
        key, given, text = argument.partition("=")
        name = key.partition(".")[2]
        names.append(name)
        if name in DEFAULTS:
            flat[name] = parse_value(argument, f"--config.{name}", DEFAULTS[name])
        elif re.fullmatch(r"model\.\w+", name):
            flat[name] = _argument_of_model(text) if given else True
        else:
            raise schema.unknown_key_error(name)
    lengths = {key for key in ("epochs", "total_steps") if flat.get(key)}
    replaced = lengths - {*names}
    if len(lengths) > 1 and not replaced:
        raise UsageError("Expected config.epochs or config.total_steps. Received: both.")
    if lengths & {*names}:
        flat |= {key: DEFAULTS[key] for key in replaced}
    return schema.nested(flat)


def parse_value(argument: str, label: str, before: Any) -> Any:
    """Returns the value of `…KEY=VALUE`, or `…KEY`, with the type of the value `before` it.

    Raises `UsageError`, which names the key by `label`, for a value of another type.
    """
    _, given, text = argument.partition("=")
    kind = type(before)
    try:
        if kind is bool:
            return _BOOLS[text.lower() if given else "true"]
        if kind is str and given:
            return text
        if kind in (int, float):
            return float(text) if kind is float else _whole(text)
        if kind is tuple:
            return tuple(_whole(each) for each in text.strip("()[], ").split(","))
    except (KeyError, ValueError):
        pass
    # 0 often means something else than a number of something.
    expected = f"{schema.KINDS[kind]}, such as {before or 32 if kind is int else before!r}"
    raise UsageError(f"{label}: expected {expected}. Received: {text or 'nothing'}")


def _whole(text):
    # Python writes 1e4 only as a float.
    number = float(text)
    return int(number) if "e" in text.lower() and number.is_integer() else int(text)


def _argument_of_model(text):
    if text.lower() in ("true", "false"):
        return _BOOLS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
