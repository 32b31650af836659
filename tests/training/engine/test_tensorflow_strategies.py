import json

import pytest
import tensorflow as tf

from keras_vit.training.config.schema import complete
from keras_vit.training.engine.tensorflow import compiles, read_cluster
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
        ({"task": TASK}, "KeyError: 'cluster'"),
        ({"cluster": WORKERS}, "KeyError: 'task'"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "'worker', 2"),
        ({"cluster": {"worker": 3}, "task": TASK}, "not iterable"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}, "'ps'"),
        ({"cluster": {"worker": ["host1"]}, "task": TASK}, "'host1' is not host:port"),
    ],
)
def test_wrong_cluster(content, message):
    with pytest.raises(UsageError, match=message):
        read_cluster(environment(content))
    with pytest.raises(UsageError, match="KeyError: 'TF_CONFIG'"):
        read_cluster({})
