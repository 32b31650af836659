"""The options that several commands share, with one spelling and one meaning."""

import argparse
from typing import Any

from benchmarks.harness.case import MODES, PRECISIONS

_OPTIONS: dict[str, dict[str, Any]] = {
    "model": {"help": "a name, for example ViT-Ti/16"},
    "mode": {"choices": MODES},
    "batch_size": {"type": int, "help": "images per step"},
    "image_size": {"type": int, "help": "in pixels"},
    "precision": {"choices": PRECISIONS},
    "rounds": {"type": int, "help": "turns of each; medians over them are printed"},
    "seconds": {"type": float, "help": "length of a turn"},
    "threads": {"type": int, "help": "processor cores to use"},
}


def parser(command: str, description: str, **defaults: Any) -> argparse.ArgumentParser:
    """Returns the parser of `python -m benchmarks COMMAND`.

    Args:
        command: its name.
        description: what `--help` prints above the options.
        **defaults: the shared options that the command takes, and the default of each.
    """
    result = argparse.ArgumentParser(
        prog=f"python -m benchmarks {command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default in defaults.items():
        result.add_argument(f"--{name}", default=default, **_OPTIONS[name])
    return result
