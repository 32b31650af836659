"""The other workers of a multi-worker job: who they are, and whether they are alive."""

import json
import os
import re
import socket
import sys
import threading
import time
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

    addresses: dict
    task: tuple

    @property
    def others(self):
        """{"worker 1 (host:port)": (host, port)} of all other tasks."""
        result = {}
        for task, address in self.addresses.items():
            if task != self.task:
                host, port = address.rsplit(":", 1)
                result[f"{task[0]} {task[1]} ({address})"] = (host, int(port))
        return result


def read_cluster(environment=os.environ):
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


class Watch:
    """Ends this process, with one message, when a peer has died or never came.

    TensorFlow leaves a worker whose peer died waiting, or aborts it without saying which peer or
    what to do. Every worker serves a port while it lives; a thread asks for it.

    Args:
        cluster: `Cluster`.
        timeout: seconds to wait for a peer to come, and for one to answer again.
        on_loss: called with the message; by default prints it and exits with status 1.
    """

    def __init__(self, cluster, timeout, on_loss=None):
        self.timeout = timeout
        self.peers = cluster.others
        self.on_loss = on_loss or _leave
        self.resume_hint = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        """Stops watching: from now on peers may leave."""
        self._over.set()
        self._thread.join()

    def wait_until_gone(self, seconds):
        """Waits until the peers have ended, `seconds` at most."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(_answers(peer)[0] for peer in self.peers.values()):
            time.sleep(0.1)

    def _watch(self):
        now = time.monotonic()
        last_seen = dict.fromkeys(self.peers, now)
        came = set()
        while not self._over.wait(1.0):
            for name, address in self.peers.items():
                alive, refused = _answers(address)
                now = time.monotonic()
                if alive:
                    came.add(name)
                    last_seen[name] = now
                    continue
                # A closed port on a live host says that the process is gone.
                patience = min(3.0, self.timeout) if refused and name in came else self.timeout
                if now - last_seen[name] > patience and not self._over.is_set():
                    self._over.set()
                    self.on_loss(self._message(name, name in came))

    def _message(self, name, came):
        if came:
            what = f"Lost {name}: it no longer answers. Workers of a job live and end together."
        else:
            what = f"No answer from {name} within {self.timeout} s."
        return (
            f"{what} {self.resume_hint}Start all workers again with the same command and workdir."
        )


def _answers(address):
    """Returns (whether the port accepts a connection, whether the host refused it)."""
    try:
        with socket.create_connection(address, timeout=5.0):
            return True, False
    except ConnectionRefusedError:
        return False, True
    except OSError:
        return False, False


def _leave(message):
    print(f"error: {message}", file=sys.stderr, flush=True)
    # The main thread may be waiting inside TensorFlow for the lost peer.
    os._exit(1)
