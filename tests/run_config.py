"""The `config.json` of a run, as a trainer writes it, in the parts that a test needs."""

import json
import pathlib
from typing import Any

# What the run was trained on: ten examples that nobody reads.
DATA = {"class_names": None, "train": {"examples": 10, "digest": "0" * 32}, "eval": None}
DATA |= {"accepted": []}


def run_config(data: dict[str, Any] = DATA, **config: Any) -> dict[str, Any]:
    """Returns a config as it is read again, with the data of the run."""
    return {"data": data, **config}


def write_run_config(folder: pathlib.Path, **config: Any) -> dict[str, Any]:
    """Writes the `config.json` of a run directory and returns what it holds."""
    found = run_config(**config)
    (folder / "config.json").write_text(json.dumps(found))
    return found
