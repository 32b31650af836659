"""The processes of a job: joining them, and noticing that one is gone."""

import collections
import contextlib
import ctypes
import os
import signal
import socket
import threading
import time

import jax
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from ..errors import Disagreement, UsageError
from .engine_interface import gather_text
from .worker_watch import SECONDS_TO_NAME_THE_LOST, Watch

# Hosts of a job whose processes are all on one machine.
_LOOPBACK = ("localhost", "127.0.0.1")


class Job(Watch):
    """The other processes of this process's job: watched while it runs, left at its end.

    Serves a port, tells the other processes its address, and watches their ports. Waits `timeout`
    seconds for an answer. `coordinator` is the host of process 0, "" where JAX detects it.
    """

    def __init__(self, timeout: float, coordinator: str = ""):
        host = _own_host(coordinator)
        self._server = socket.create_server((host, 0), backlog=64)
        threading.Thread(target=self._answer, daemon=True).start()
        addresses = enumerate(gather(f"{host}:{self._server.getsockname()[1]}"))
        own = jax.process_index()
        peers = {f"worker {index}": peer for index, peer in addresses if index != own}
        super().__init__(peers, timeout)
        # Python's handlers run in its main thread, which may be waiting inside JAX.
        ctypes.CDLL(None).signal(signal.SIGABRT, _wait_for_the_watch)

    def _answer(self):
        # Ends when the server does.
        with contextlib.suppress(OSError):
            while True:
                self._server.accept()[0].close()

    def leave(self, together: bool) -> None:
        """Leaves the job, once all of it does so, or at once where this process alone fails.

        Then the other processes notice, and end as well.
        """
        self.stop()
        if not together:
            self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
        # After the loss of a process there is no order to keep.
        with contextlib.suppress(RuntimeError):
            jax.distributed.shutdown()


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _wait_for_the_watch(signal_number):
    """Keeps JAX from aborting this process, at once and without a name, when process 0 is lost."""
    # In the thread that aborts. The watch ends the process before.
    time.sleep(SECONDS_TO_NAME_THE_LOST)


def join(config: ConfigDict) -> Job | None:
    """Connects the processes of a job; call it before JAX looks for devices.

    `config.processes.coordinator` says how: "host:port" is where process 0 can be reached, with
    `config.processes.count` and `.index`; "auto" leaves all three to what JAX detects (a TPU
    slice, Slurm, Open MPI); "" is one process alone, or "auto" on a TPU slice of several hosts.
    Returns the job, or None if there is no other process. Raises `UsageError` if the processes
    cannot be joined as described, or have unequal devices.
    """
    processes = config.processes
    if not processes.coordinator and "," not in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        return None
    host, _, port = processes.coordinator.rpartition(":")
    arguments = {}
    if host:
        arguments = {
            "coordinator_address": processes.coordinator,
            "num_processes": processes.count,
            "process_id": processes.index,
            "coordinator_bind_address": f"{_interface(host)}:{port}",
        }
    try:
        jax.distributed.initialize(
            **arguments,
            initialization_timeout=config.peer_timeout,
            shutdown_timeout_seconds=config.peer_timeout,
        )
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"The processes of config.processes cannot be joined: {str(error).splitlines()[0]} "
            "Expected process 0 at config.processes.coordinator and every index below "
            "config.processes.count started once."
        ) from error
    devices = collections.Counter(each.process_index for each in jax.devices())
    if len({*devices.values()}) > 1:
        counts = ", ".join(f"{devices[each]} in process {each}" for each in sorted(devices))
        raise Disagreement(
            f"Expected every process to have as many devices as the others. Received: {counts}. "
            "CUDA_VISIBLE_DEVICES says which a process has."
        )
    return Job(config.peer_timeout, host) if jax.process_count() > 1 else None


def gather(text: str) -> list[str]:
    """Waits for all processes and returns the text of each, in the order of their indices."""
    return gather_text(text, multihost_utils.process_allgather)


def _interface(host):
    """Returns the address of this host that a coordinator's name stands for; "[::]" is all."""
    try:
        with socket.create_server((host, 0)) as server:
            address = server.getsockname()[0]
    except OSError:
        return "[::]"  # The name may be of a service, which forwards the port.
    # In /etc/hosts a host's own name may be an address that other hosts do not reach.
    return address if host in _LOOPBACK or not address.startswith("127.") else "[::]"


def _own_host(coordinator):
    """Returns the address by which the other processes reach this host."""
    try:
        # The address from which this process would reach other hosts; nothing is sent.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((coordinator if coordinator in _LOOPBACK else "10.255.255.255", 1))
            return probe.getsockname()[0]
    except OSError:
        return socket.gethostbyname(socket.gethostname())
