"""What the processes of a job make sure of together, before any of them trains."""

import json
import os

from ml_collections import ConfigDict

from keras_vit.version import __version__
from training import config_keys
from training.engines.base import Engine
from training.errors import Disagreement, UsageError
from training.io.local_path import is_remote
from training.loop.workplace import Lock


def check_alike(engine: Engine, config: ConfigDict, workdir: str | os.PathLike) -> None:
    """Checks that all processes of the job were started with the same command and package.

    Raises:
        Disagreement: in all of them, naming what differs.
    """
    shared = config_keys.shared_by_processes(config)
    own = {f"config.{name}": value for name, value in shared.items()}
    place = os.fspath(workdir)
    own |= {"--workdir": place if is_remote(place) else os.path.abspath(place)}
    own |= {"the version of keras-vit": __version__}
    everyone = engine.gather(json.dumps(own))
    first = json.loads(everyone[0])
    for number, text in enumerate(everyone):
        other = json.loads(text)
        differing = [
            f"{name} is {first.get(name)!r} in worker 0 and {other.get(name)!r} in worker {number}"
            for name in sorted(first.keys() | other.keys())
            if first.get(name) != other.get(name)
        ]
        if differing:
            raise Disagreement(
                "Expected all workers of a job to have the same config, --workdir and version: "
                f"{'; '.join(differing)}. Start all of them again with the same command."
            )


def check_place(engine: Engine, workdir: str | os.PathLike) -> None:
    """Checks that the processes of the job can share the run directory.

    Raises:
        Disagreement: if it is remote and each of several processes writes a part of the states.
    """
    parts = engine.writes_in_parts and len(engine.gather("")) > 1
    if parts and is_remote(os.fspath(workdir)):
        raise Disagreement(
            "Expected a folder that all processes see: each of them writes its part of a state. "
            f"Received: {workdir}. Mount it, as with gcsfuse, and name that folder."
        )


def take(engine: Engine, lock: Lock) -> None:
    """Takes the run directory for the job: its chief does, all others rely on that.

    Raises:
        Disagreement: in all of them, if another process has it, or it cannot be written.
    """
    refusal = ""
    if engine.is_chief:
        try:
            lock.take()
        except (UsageError, OSError) as error:
            refusal = str(error)
    message = "".join(engine.gather(refusal))
    if message:
        raise Disagreement(message)


def check_step(engine: Engine, checkpoints: str | os.PathLike) -> None:
    """Checks that all processes of the job start from the same step.

    Raises:
        Disagreement: in all of them, if they do not.
    """
    steps = engine.gather(str(engine.step))
    if len(set(steps)) > 1:
        raise Disagreement(
            f"The workers found checkpoints of different steps, {', '.join(steps)}, in "
            f"{checkpoints}. All workers need the same --workdir on a shared file system."
        )
