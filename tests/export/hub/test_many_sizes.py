"""What a module of any resolution keeps in memory for each size that it has seen.

The bounds are those of docs/tf_hub.md.
"""

import json
import subprocess
import sys

import pytest

from keras_vit import export

# The first size is the largest.
CALL = """
import gc, json, sys
import numpy as np, tensorflow as tf, tensorflow_hub as hub
module = hub.load(sys.argv[1])
spec = tf.TensorSpec((None, None, None, 3), tf.float32)
function = module if sys.argv[2] == "module" else tf.function(module, input_signature=[spec])
def call(sizes):
    gc.collect()
    before = resident()
    for size in sizes:
        function(np.zeros((1, *size, 3), "float32"))
    gc.collect()
    return resident() - before
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
sizes = [(8 * rows, 8 * columns) for rows in range(8, 2, -1) for columns in range(8, 2, -1)]
call(sizes[:6])
before = module.__call__.experimental_get_tracing_count()
new = call(sizes[6:])
traces = module.__call__.experimental_get_tracing_count() - before
print(json.dumps({"new": new, "again": call(sizes[6:]), "traces": traces}))
"""
SIZES = 30


@pytest.fixture(scope="module")
def directory(make_vit, tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "any"
    return export.to_hub(make_vit(num_layers=1), path, resolution="any")


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("function", "onednn", "most", "traces"),
    [("module", "0", 8.0, SIZES), ("wrapped", "0", 0.25, 0), ("wrapped", "1", 2.0, 0)],
)
def test_memory_of_each_new_size(function, onednn, most, traces, directory, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
    process = subprocess.run(
        [sys.executable, "-c", CALL, str(directory), function], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["traces"] == traces
    assert found["new"] / SIZES < most, found
    assert found["again"] / SIZES < max(most / 4, 0.25), found
