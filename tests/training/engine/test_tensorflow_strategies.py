import json
import queue
import socket

import pytest
import tensorflow as tf

from keras_vit.training.config.schema import complete
from keras_vit.training.engine.tensorflow import compiles, read_cluster
from keras_vit.training.engine.worker_watch import Watch
from keras_vit.training.errors import UsageError


def run_of(steps):
    return complete({"dataset": "digits", "batch_size": 8, "total_steps": steps})


WORKERS = {"worker": ["host1:2222", "host2:2222"]}
TASK = {"type": "worker", "index": 0}


@pytest.mark.parametrize(
    "capability, auto", [((9, 0), True), ((10, 0), False), ((12, 0), False)], ids=str
)
def test_xla_on_gpus_and_refused_where_it_crashes(monkeypatch, capability, auto):
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu])
    details = {"compute_capability": capability, "device_name": "NVIDIA B200"}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    config = run_of(1)
    assert compiles(config) == auto
    config.jit_compile = "on"
    if auto:
        assert compiles(config)
    else:
        with pytest.raises(UsageError, match=r"B200\. Train with KERAS_BACKEND=jax"):
            compiles(config)


@pytest.mark.parametrize(
    "flags, steps, auto",
    [
        ("avx512_bf16 amx_bf16", 1000, True),
        ("avx512_bf16 amx_bf16", 999, False),
        ("avx512_bf16", 1000, False),
    ],
)
def test_xla_on_cpus_with_matrix_units(monkeypatch, flags, steps, auto):
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: f"flags : fpu {flags}\n")
    config = run_of(steps)
    for config.jit_compile, expected in (("auto", auto), ("on", True), ("off", False)):
        assert compiles(config) == expected


def environment(content):
    return {"TF_CONFIG": content if isinstance(content, str) else json.dumps(content)}


def test_cluster():
    cluster = read_cluster(
        environment({"cluster": WORKERS, "task": {"type": "worker", "index": "1"}})
    )
    assert cluster.task == ("worker", 1)
    assert cluster.others == {"worker 0": "host1:2222"}


@pytest.mark.parametrize(
    "content, message",
    [
        ("{cluster", "JSONDecodeError"),
        ({"cluster": WORKERS}, "KeyError: 'task'"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "'worker', 2"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}, "'ps'"),
        ({"cluster": {"worker": ["host1"]}, "task": TASK}, "'host1' is not host:port"),
    ],
)
def test_wrong_cluster(content, message):
    with pytest.raises(UsageError, match=message):
        read_cluster(environment(content))
    with pytest.raises(UsageError, match="KeyError: 'TF_CONFIG'"):
        read_cluster({})


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
