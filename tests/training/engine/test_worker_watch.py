import queue
import socket

import pytest

from keras_vit.training.engine.worker_watch import Watch


def watch(address, timeout):
    messages = queue.Queue()
    return Watch({"worker 1": address}, timeout, on_loss=messages.put).start(), messages


def test_peer_that_never_comes():
    with socket.create_server(("localhost", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
    _, messages = watch(address, timeout=1)
    message = messages.get(timeout=30)
    assert message.startswith(f"No answer from worker 1 ({address}) within 1 s.")


def test_peer_that_dies():
    server = socket.create_server(("localhost", 0))
    address = f"localhost:{server.getsockname()[1]}"
    _, messages = watch(address, timeout=60)
    server.accept()
    with pytest.raises(queue.Empty):
        messages.get(timeout=1.5)
    server.close()
    assert messages.get(timeout=30).startswith(f"Lost worker 1 ({address})")


def test_peer_that_leaves_after_the_end():
    server = socket.create_server(("localhost", 0))
    running, messages = watch(f"localhost:{server.getsockname()[1]}", timeout=1)
    server.accept()
    running.stop()
    server.close()
    with pytest.raises(queue.Empty):
        messages.get(timeout=3)
