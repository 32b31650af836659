"""The workers of a multi-worker job, as the environment variable `TF_CONFIG` lists them."""

import json
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from training.errors import UsageError

_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


class Cluster(NamedTuple):
    """The content of `TF_CONFIG`.

    Attributes:
        addresses: {(type, index): "host:port"} of every task.
        task: (type, index) of this process.
    """

    addresses: dict[tuple[str, int], str]
    task: tuple[str, int]

    @property
    def others(self) -> dict[str, tuple[str, int]]:
        """{"worker 1 (host:port)": (host, port)} of all other tasks."""
        result = {}
        for task, address in self.addresses.items():
            if task != self.task:
                host, port = address.rsplit(":", 1)
                result[f"{task[0]} {task[1]} ({address})"] = (host, int(port))
        return result


def read_cluster(environment: Mapping[str, str] = os.environ) -> Cluster:
    """Returns the `Cluster` described by the environment variable `TF_CONFIG`.

    Raises:
        UsageError: naming what is wrong with the variable.
    """
    text = environment.get("TF_CONFIG", "")
    if not text:
        raise _wrong("it is not set")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(f"it is not JSON ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("cluster"), dict):
        raise _wrong('it has no "cluster"')
    addresses = {}
    for kind, tasks in content["cluster"].items():
        if kind not in ("chief", "worker"):
            raise _wrong(f'the cluster has a job {kind!r}, expected "worker" and perhaps "chief"')
        if not isinstance(tasks, list):
            raise _wrong(f"cluster.{kind} is not a list of addresses")
        for index, address in enumerate(tasks):
            if not re.fullmatch(r".+:\d+", str(address)):
                raise _wrong(f"{address!r} is not host:port")
            addresses[kind, index] = address
    if len(set(addresses.values())) < len(addresses):
        raise _wrong("two tasks have the same address")
    task = content.get("task")
    if not isinstance(task, dict) or "type" not in task or "index" not in task:
        raise _wrong('it has no "task" with "type" and "index"')
    try:
        own = (task["type"], int(task["index"]))
    except (TypeError, ValueError):
        raise _wrong(f"task index {task['index']!r} is not a number") from None
    if own not in addresses:
        raise _wrong(f"the cluster has no {own[0]} {own[1]}, which it says this process is")
    return Cluster(addresses, own)


def _wrong(what):
    return UsageError(
        f"strategy=multiworker reads the cluster from TF_CONFIG: {what}. Example: {_EXAMPLE}"
    )
