"""The other workers of a job of several processes: whether they are alive."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping

# A watch may take so long to name a process that was lost.
SECONDS_TO_NAME_THE_LOST = 10


class Watch:
    """Ends this process, with one message, when a peer has died or never came.

    A runtime leaves a worker whose peer died waiting, or aborts it without saying which peer or
    what to do. Every worker serves a port while it lives; a thread asks for it.

    Args:
        peers: {"worker 1": "host:port"} of all other workers.
        timeout: seconds to wait for a peer to come, and for one to answer again.
        on_loss: called with the message; by default prints it and exits with status 1.
    """

    def __init__(self, peers: Mapping[str, str], timeout: float, on_loss: Callable | None = None):
        self.timeout = timeout
        self.peers = {}
        for name, address in peers.items():
            host, _, port = address.rpartition(":")
            self.peers[f"{name} ({address})"] = host, int(port)
        self.on_loss = on_loss or _leave
        self.came: set[str] = set()  # names of the peers that have answered
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops watching: from now on peers may leave."""
        self._over.set()
        self._thread.join()

    def wait_until_gone(self, seconds: float) -> None:
        """Waits until the peers have ended, `seconds` at most."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(_answers(peer)[0] for peer in self.peers.values()):
            time.sleep(0.1)

    def _watch(self):
        now = time.monotonic()
        last_seen = dict.fromkeys(self.peers, now)
        while not self._over.wait(1.0):
            for name, address in self.peers.items():
                alive, refused = _answers(address)
                now = time.monotonic()
                if alive:
                    self.came.add(name)
                    last_seen[name] = now
                    continue
                # A closed port on a live host says that the process is gone.
                patience = min(3.0, self.timeout) if refused and name in self.came else self.timeout
                if now - last_seen[name] > patience and not self._over.is_set():
                    self._over.set()
                    self.on_loss(self._message(name))

    def _message(self, name):
        if name in self.came:
            what = f"Lost {name}: it no longer answers. Workers of a job live and end together."
        else:
            what = f"No answer from {name} within {self.timeout} s."
        advice = "Start all workers again with the same command and workdir."
        return f"{what} Training resumes from its last checkpoint, if there is one. {advice}"


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
    # The main thread may be waiting inside the runtime for the lost peer.
    os._exit(1)
