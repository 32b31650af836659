import queue
import socket

import pytest

from keras_vit.training.engine.worker_watch import Watch


def watched(timeout, came=True):
    """Returns a peer, its address, the watch over it, and the messages of that."""
    server, messages = socket.create_server(("localhost", 0)), queue.Queue()
    address = f"localhost:{server.getsockname()[1]}"
    if not came:
        server.close()
    return server, address, Watch({"worker 1": address}, timeout, messages.put), messages


def test_peer_that_never_comes():
    _, address, _, messages = watched(timeout=1, came=False)
    message = messages.get(timeout=30)
    assert message.startswith(f"No answer from worker 1 ({address}) within 1 s.")


@pytest.mark.long
def test_peer_that_dies():
    server, address, _, messages = watched(timeout=60)
    server.accept()
    with pytest.raises(queue.Empty):
        messages.get(timeout=1.5)
    server.close()
    assert messages.get(timeout=30).startswith(f"Lost worker 1 ({address})")


def test_peer_that_leaves_after_the_end():
    server, _, watch, messages = watched(timeout=1)
    server.accept()
    watch.stop()
    server.close()
    # The thread that would send one has ended.
    assert messages.empty()
