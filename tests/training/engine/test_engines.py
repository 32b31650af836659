import json
import queue
import shutil
import socket
import types

import keras
import pytest
import tensorflow as tf

from keras_vit.training.config.schema import complete
from keras_vit.training.engine import create_engine
from keras_vit.training.engine.engine_interface import Engine
from keras_vit.training.engine.tensorflow import compiles, read_cluster
from keras_vit.training.engine.worker_watch import Watch
from keras_vit.training.errors import TrainingError, UsageError
from tests.tiny_vit import tiny_vit
from tests.training.small_engine import random_batches, small_engine

CONFIG = {"dataset": "digits", "batch_size": 8, "total_steps": 1}
WORKERS = {"worker": ["host1:2222", "host2:2222"]}


def engine_of(num_classes=5, **changes):
    changes = {"optimizer": {"first_moment_dtype": "bfloat16"}, **changes}
    return small_engine(lambda _: tiny_vit(num_layers=1, num_classes=num_classes), **changes)


def test_the_backend_chooses_the_engine(monkeypatch):
    config = engine_of().config
    assert type(create_engine(config)).__name__ == "TensorFlowEngine"
    config.strategy = "sharded"
    with pytest.raises(UsageError, match=r"one or mirrored or .* with the backend tensorflow"):
        create_engine(config)
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(UsageError, match=r"expected tensorflow or jax\. Received: 'torch'"):
        create_engine(config)


def test_states_that_are_damaged_or_of_another_model_and_splits_without_examples(tmp_path):
    engine = engine_of()
    empty = tf.data.Dataset.from_tensor_slices(random_batches(1, 16)).take(0)
    parts = [lambda model, batch: model(batch["image"])[0], lambda *_: empty, tf.identity]
    sums = engine.make_split_sums(*parts)
    with pytest.raises(ValueError, match=r"Expected a split with examples\. Received: none"):
        sums()
    assert engine.restore(tmp_path) is None
    engine.save({})
    with pytest.raises(TrainingError, match=r"step 0 in .* has no head/kernel of shape \(16, 7\)"):
        engine_of(num_classes=7).restore(tmp_path)
    # A damaged state gives way to the one before.
    shutil.copytree(tmp_path / "checkpoint-0", tmp_path / "checkpoint-5")
    engine.restore(tmp_path)
    assert engine.step == 0 and (tmp_path / "damaged-checkpoint-5").exists()


@pytest.mark.parametrize("capability, auto", [((9, 0), True), ((10, 0), False), ((12, 0), False)])
def test_xla_on_gpus_and_refused_where_it_crashes(monkeypatch, capability, auto):
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu])
    details = {"compute_capability": capability, "device_name": "NVIDIA B200"}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    config = complete(CONFIG)
    assert compiles(config) == auto
    config.jit_compile = "on"
    if auto:
        assert compiles(config)
    else:
        with pytest.raises(UsageError, match=r"B200\. Train with KERAS_BACKEND=jax"):
            compiles(config)


@pytest.mark.rows(("amx_bf16", 1000, True), ("amx_bf16", 999, False), ("", 1000, False))
def test_xla_on_cpus_with_matrix_units(flag, steps, auto, monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: f"flags : avx512_bf16 {flag}\n")
    config = complete(CONFIG | {"total_steps": steps})
    for config.jit_compile, expected in (("auto", auto), ("on", True), ("off", False)):
        assert compiles(config) == expected


def job_of(addresses, kind, index):
    return {"TF_CONFIG": json.dumps({"cluster": addresses, "task": {"type": kind, "index": index}})}


@pytest.mark.rows(
    ({}, "KeyError: 'TF_CONFIG'"),
    ({"TF_CONFIG": "{cluster"}, "JSONDecodeError"),
    ({"TF_CONFIG": json.dumps({"cluster": WORKERS})}, "KeyError: 'task'"),
    (job_of(WORKERS, "worker", 2), "'worker 2'"),
    (job_of({"ps": ["a:1"]}, "ps", 0), "'ps'"),
    (job_of({"worker": ["host1"]}, "worker", 0), "'host1' is not host:port"),
)
def test_clusters(environment, message):
    own, tasks = read_cluster(job_of(WORKERS, "worker", "1"))
    assert own == "worker 1" and tasks == {"worker 0": "host1:2222", "worker 1": "host2:2222"}
    with pytest.raises(UsageError, match=message):
        read_cluster(environment)


@pytest.mark.parametrize("came", [False, True])
def test_a_peer_that_never_comes_and_one_that_leaves_after_the_end(came):
    server, messages = socket.create_server(("localhost", 0)), queue.Queue()
    address = f"localhost:{server.getsockname()[1]}"
    if not came:
        server.close()
    watch = Watch({"worker 1": address}, 1, messages.put)
    if came:
        server.accept()
        watch.stop()
        server.close()
        assert messages.empty()  # The thread that would send one has ended.
    else:
        expected = f"No answer from worker 1 ({address}) within 1 s."
        assert messages.get(timeout=30).startswith(expected)


def test_the_rate_is_that_of_the_last_update():
    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(1.0, 10, 0.0))
    for step, rate in ((0, 1.0), (1, 1.0), (4, 0.7)):
        engine = types.SimpleNamespace(optimizer=optimizer, step=step)
        assert Engine.learning_rate.fget(engine) == pytest.approx(rate)
    assert int(optimizer.iterations) == 0
