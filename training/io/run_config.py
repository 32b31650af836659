"""Reading the `config.json` of a run, which somebody may have edited or a disk damaged."""

import json
import os
from typing import Any

from training import config_keys
from training.io.local_path import any_path


def read_run_config(file: str | os.PathLike) -> dict[str, Any]:
    """Returns the config of a run as nested dicts; keys of other versions stay in it.

    Raises:
        ValueError: if it is not JSON, or a key has a value of the wrong type.
        OSError: if it cannot be read.
    """
    try:
        config = json.loads(any_path(file).read_text(encoding="utf-8"))
        wrong = config_keys.wrong_type(config)
    except (ValueError, RecursionError) as error:
        wrong = str(error)
    if wrong:
        raise ValueError(
            f"Expected the config of a run. {file} is damaged: {wrong}. Restore it, or use another "
            "directory."
        )
    return config
