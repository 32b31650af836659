"""Cost of an artifact, measured in a process of its own.

`python -m export.verification.latency_and_memory ARTIFACT --threads=1` prints one line of JSON:
seconds to load, seconds of the first call, median milliseconds of a single image, and peak memory.
Only the artifact's own runtime is imported, so that the memory is what an application would need.
"""

import argparse
import collections
import json
import os
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from export.verification.own_process import run_module

MODULE = "export.verification.latency_and_memory"
ROUNDS = 25
SECONDS = 10.0


def measure(
    path: str | os.PathLike, threads: int, image_size: tuple[int, int], rounds: int = ROUNDS
) -> dict[str, Any]:
    """Runs an artifact on one image at a time in a new process.

    Args:
        path: a TFLite file or the directory of a SavedModel.
        threads: of the runtime.
        image_size: (height, width) of the image if the artifact takes any.
        rounds: calls to take the median of, fewer if they last over 10 s.

    Returns:
        dict of "load_seconds", "first_call_seconds", "latency_ms", "peak_memory_bytes",
        and for TFLite "partitions" and "operations_outside_delegate".

    Raises:
        RuntimeError: if the artifact does not run.
    """
    sizes = [f"--threads={threads}", f"--rounds={rounds}", "--image_size", *map(str, image_size)]
    result = run_module(MODULE, [str(path), *sizes])
    if result.returncode:
        raise RuntimeError(f"{path} does not run:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures in this process and prints JSON."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("artifact", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--image_size", type=int, nargs=2, default=(224, 224), help="where any size is taken"
    )
    options = parser.parse_args(arguments)
    open_artifact = _open_module if options.artifact.is_dir() else _open_tflite
    prepare, load = open_artifact(options.artifact, options.threads, options.image_size)
    prepare()
    start = time.perf_counter()
    call, details = load()
    loaded = time.perf_counter()
    call()
    first = time.perf_counter()
    peak = _peak_memory()
    result = {
        "load_seconds": loaded - start,
        "first_call_seconds": first - loaded,
        "latency_ms": 1000 * _median(call, options.rounds),
        "peak_memory_bytes": peak,
        **details(),
    }
    print(json.dumps(result))


def _median(call, rounds):
    times, start = [], time.perf_counter()
    while len(times) < rounds and (not times or time.perf_counter() - start < SECONDS):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def _peak_memory():
    """Returns the largest resident memory so far, in bytes."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # getrusage would return the peak of the process that started this one.
        (line,) = [x for x in status.read_text().splitlines() if x.startswith("VmHWM")]
        return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _open_tflite(path, threads, image_size):
    def prepare():
        import ai_edge_litert.interpreter  # noqa: F401  its import is not the artifact's cost

    def load():
        import numpy as np
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(path), num_threads=threads)
        runner = interpreter.get_signature_runner("serving_default")
        inputs = {
            name: np.full(detail["shape"], 0.5, detail["dtype"])
            for name, detail in runner.get_input_details().items()
        }
        return (lambda: runner(**inputs)), (lambda: delegation(interpreter))

    return prepare, load


def _open_module(path, threads, image_size):
    def prepare():
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)

    def load():
        import tensorflow as tf

        signature = tf.saved_model.load(str(path)).signatures["serving_default"]
        inputs = {
            name: tf.fill([1, *image_size, 3], 0.5)
            for name in signature.structured_input_signature[1]
        }

        def call():
            return [value.numpy() for value in signature(**inputs).values()]

        return call, dict

    return prepare, load


def delegation(interpreter: Any) -> dict[str, Any]:
    """Counts the delegate's partitions and the operations that it left to the interpreter.

    Args:
        interpreter: a LiteRT `Interpreter` whose tensors are allocated.

    Returns:
        dict of "partitions", an int, and "operations_outside_delegate", of names to counts.
    """
    # A delegate's node stays in the list beside the operations that it replaces: those
    # between its outputs and its inputs.
    nodes = interpreter._get_ops_details()
    partitions = [node for node in nodes if node["op_name"] == "DELEGATE"]
    plain = [node for node in nodes if node["op_name"] != "DELEGATE"]
    producer = {int(t): i for i, node in enumerate(plain) for t in node["outputs"]}
    replaced = set()
    for partition in partitions:
        known = {int(t) for t in partition["inputs"]}
        pending = [int(t) for t in partition["outputs"]]
        while pending:
            tensor = pending.pop()
            index = producer.get(tensor)
            if tensor in known or index is None:
                continue
            known.add(tensor)
            replaced.add(index)
            pending.extend(int(t) for t in plain[index]["inputs"])
    outside = [node["op_name"] for i, node in enumerate(plain) if i not in replaced]
    return {
        "partitions": len(partitions),
        "operations_outside_delegate": dict(sorted(collections.Counter(outside).items())),
    }


if __name__ == "__main__":
    main()
