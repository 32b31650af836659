import json

import pytest
import tensorflow as tf

from keras_vit.training.config.schema import complete
from keras_vit.training.engine.tensorflow import create_strategy, read_cluster
from keras_vit.training.errors import UsageError

WORKERS = {"worker": ["host1:2222", "host2:2222"]}


@pytest.mark.parametrize("capability, refused", [((9, 0), False), ((10, 0), True), ((12, 0), True)])
def test_xla_is_refused_where_it_crashes(monkeypatch, capability, refused):
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu])
    details = {"compute_capability": capability, "device_name": "NVIDIA B200"}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    config = complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    create_strategy(config)
    config.jit_compile = True
    if refused:
        with pytest.raises(UsageError, match=r"B200\. Train with KERAS_BACKEND=jax"):
            create_strategy(config)
    else:
        create_strategy(config)


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
