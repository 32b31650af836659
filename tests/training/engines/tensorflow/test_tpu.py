"""The training step under a real `TPUStrategy` over fake devices, which can trace but not run."""

import json
import pathlib

SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "fake_tpu.py"


def test_step_traces_under_tpu_strategy(launch, tmp_path):
    output = tmp_path / "operations.json"
    process = launch(SCRIPT, output)
    log, _ = process.communicate(timeout=500)
    assert process.returncode == 0, log
    traced = json.loads(output.read_text())
    assert traced["strategy"] == "TPUStrategyV2"
    assert traced["variable"] == "TPUDistributedVariable"
    assert traced["replicas"] == 2

    train = traced["train"]
    # One loop on the host, one program on the device, one sum for every gradient and the loss.
    assert train["While"] == 1
    assert train["TPUReplicateMetadata"] == 1
    assert train["CrossReplicaSum"] == traced["variables"] + 1
    # Nothing calls back to Python, draws from a stateful generator or has a shape of its own.
    for forbidden in ("PyFunc", "EagerPyFunc", "RandomUniform", "Where", "Unique"):
        assert forbidden not in train
    assert traced["evaluate"]["TPUReplicateMetadata"] == 1
    assert traced["evaluate"]["CrossReplicaSum"] == 1
