"""Checks that the processes of a job agree, before any of them trains.

Each raises `Disagreement` in all processes, with a line that names what differs.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from keras_vit.version import __version__

from ..config import schema
from ..data.sets import fingerprint
from ..engine.engine_interface import Engine
from ..errors import Disagreement, UsageError
from ..io.paths import is_remote
from .run_directory import RunDirectory


def check_alike(engine: Engine, config: ConfigDict, workdir: str | os.PathLike) -> None:
    """Checks that all processes were started with the same command and package."""
    differing = {key.name for key in schema.KEYS if key.own}
    flat = schema.flatten(config.to_dict())
    facts = {f"config.{name}": value for name, value in flat.items() if name not in differing}
    facts["--workdir"] = os.fspath(workdir) if is_remote(workdir) else os.path.abspath(workdir)
    facts["the version of keras-vit"] = __version__
    expected = "of a job to have the same config, --workdir and version"
    _require_same(engine, facts, expected, "Start all of them again with the same command.")


def check_data(engine: Engine, data: Mapping[str, Any]) -> None:
    """Checks that all processes read the same data, of `Dataset.describe`."""
    names = [name.encode() for name in data["class_names"] or ()]
    facts: dict[str, Any] = {"the digest of the class names": fingerprint.digest_of(names)}
    for split in ("train", "eval"):
        for key in ("examples", "digest"):
            facts[f"the {key} of {split}"] = (data[split] or {}).get(key)
    remedy = "Give all of them the same files, then start all of them again."
    _require_same(engine, facts, "to read the same data", remedy)


def _require_same(engine, facts, expected, remedy):
    """Raises for the first worker whose facts differ from those of worker 0."""
    first, *others = map(json.loads, engine.gather(json.dumps(facts)))
    for number, other in enumerate(others, 1):
        differing = [
            f"{name} is {first.get(name)!r} in worker 0 and {other.get(name)!r} in worker {number}"
            for name in sorted(first.keys() | other.keys())
            if first.get(name) != other.get(name)
        ]
        if differing:
            raise Disagreement(f"Expected all workers {expected}: {'; '.join(differing)}. {remedy}")


def check_shared(engine: Engine, workdir: str | os.PathLike) -> None:
    """Checks that the run directory is not in a store if each process writes a part of a state."""
    if engine.parts > 1 and is_remote(workdir):
        raise Disagreement(
            "Expected a folder that all processes see: each of them writes its part of a state. "
            f"Received: {workdir}. Mount it, as with gcsfuse, and name that folder."
        )


def acquire(engine: Engine, directory: RunDirectory) -> None:
    """Acquires the run directory in the chief, on which the other processes rely."""
    refusal = ""
    if engine.is_chief:
        try:
            directory.acquire()
        except (UsageError, OSError) as error:
            refusal = str(error)
    if message := "".join(engine.gather(refusal)):
        raise Disagreement(message)


def check_step(engine: Engine) -> None:
    """Checks that all processes start from the same step."""
    expected = "to find the same checkpoints"
    remedy = "All workers need the same --workdir on a shared file system."
    _require_same(engine, {"the step of the newest": engine.step}, expected, remedy)
