import json
import queue
import socket

import pytest

from training.engines.tensorflow.worker_watch import Cluster, Watch, read_cluster
from training.errors import UsageError

WORKERS = {"worker": ["host1:2222", "host2:2222"]}


def environment(content):
    return {"TF_CONFIG": content if isinstance(content, str) else json.dumps(content)}


def test_cluster():
    cluster = read_cluster(
        environment({"cluster": WORKERS, "task": {"type": "worker", "index": "1"}})
    )
    assert cluster.task == ("worker", 1)
    assert cluster.others == {"worker 0 (host1:2222)": ("host1", 2222)}


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "it is not set"),
        ("{cluster", "it is not JSON"),
        ({"task": {"type": "worker", "index": 0}}, 'it has no "cluster"'),
        ({"cluster": WORKERS}, 'it has no "task"'),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "has no worker 2"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": "x"}}, "'x' is not a number"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}, "a job 'ps'"),
        ({"cluster": {"worker": ["host1"]}, "task": {}}, "'host1' is not host:port"),
        ({"cluster": {"worker": ["a:1", "a:1"]}, "task": {}}, "the same address"),
    ],
)
def test_wrong_cluster(content, message):
    with pytest.raises(UsageError, match=message):
        read_cluster(environment(content))


def watch(address, timeout):
    messages = queue.Queue()
    cluster = Cluster({("worker", 0): "localhost:1", ("worker", 1): address}, ("worker", 0))
    return Watch(cluster, timeout, on_loss=messages.put).start(), messages


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
    running, messages = watch(f"localhost:{server.getsockname()[1]}", timeout=60)
    server.accept()
    running.stop()
    server.close()
    with pytest.raises(queue.Empty):
        messages.get(timeout=5)
