"""Configs on the command line: `--config=FILE[:ARGUMENT]` and `--config.KEY=VALUE`."""

import ast
import difflib
import re
import runpy
from collections.abc import Sequence
from typing import cast

from ml_collections import ConfigDict

from training.errors import UsageError

_OVERRIDE = re.compile(r"--?config\.([^=]+)(?:=(.*))?", re.DOTALL)


def load_config(text: str) -> ConfigDict:
    """Returns what `get_config(ARGUMENT)` of `FILE[:ARGUMENT]` returns, a `ConfigDict`.

    Raises:
        UsageError: if the file cannot be run or its function takes no such argument.
    """
    path, _, argument = text.partition(":")
    try:
        module = runpy.run_path(path)
        if "get_config" not in module:
            raise UsageError(f"The config {path} defines no function get_config.")
        config = module["get_config"](*([argument] if argument else []))
    except UsageError:
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


def override(config: ConfigDict, arguments: Sequence[str]) -> ConfigDict:
    """Returns a copy of `config` with the values of `--config.KEY=VALUE` arguments.

    A value has the type of the one it replaces; a flag without `=VALUE` is true.

    Raises:
        UsageError: for an unknown key or a value of another type.
    """
    config = config.copy_and_resolve_references()
    for argument in arguments:
        key, value = cast(re.Match, _OVERRIDE.fullmatch(argument)).groups()
        *parents, name = key.split(".")
        owner = config
        for parent in parents:
            owner = owner.get(parent) if isinstance(owner, ConfigDict) else None
        if not isinstance(owner, ConfigDict) or name not in owner:
            known = list(owner) if isinstance(owner, ConfigDict) else list(config)
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {'.'.join([*parents, close[0]])}?" if close else ""
            raise UsageError(
                f"Unknown config key {key}. {hint or 'Known keys: ' + ', '.join(sorted(known))}"
            )
        before = owner[name]
        try:
            owner[name] = _converted("true" if value is None else value, before)
        except (ValueError, SyntaxError, TypeError) as error:
            raise UsageError(
                f"--config.{key}: expected a {type(before).__name__} such as {before!r}. "
                f"Received: {value}"
            ) from error
    return config


def _converted(text, before):
    if isinstance(before, ConfigDict):
        raise ValueError("a whole section cannot be replaced")
    if isinstance(before, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
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
