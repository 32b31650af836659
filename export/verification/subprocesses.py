"""Artifacts in a process of their own, which imports their runtime alone.

So the memory is what an application would need, and what LiteRT prints can be read: which
operations a delegate refuses, and why, is only ever printed.
"""

import collections
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras_vit

if TYPE_CHECKING:
    import numpy as np

ROUNDS = 25
SECONDS = 10.0
_MODULE = "keras_vit.export.verification.subprocesses"


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
    process = _call(
        _measured, path=os.path.abspath(path), threads=threads, image_size=image_size, rounds=rounds
    )
    if process.returncode:
        raise RuntimeError(f"{path} does not run:\n{process.stderr[-2000:]}")
    return json.loads(process.stdout.splitlines()[-1])


def run_compiled(
    path: str | os.PathLike,
    images: "np.ndarray",
    gpu: bool = False,
    environment: Mapping[str, str] | None = None,
) -> "tuple[subprocess.CompletedProcess[str], dict[str, np.ndarray], bool]":
    """Runs images through LiteRT's `CompiledModel` in a new process.

    Args:
        path: a TFLite file.
        images: (n, height, width, 3) float32 in [0, 1].
        gpu: whether on the GPU, in float32 and then in its float16, or on the processor.
        environment: variables beside those of this process.

    Returns:
        The process; {"float32": outputs} and with `gpu` "float16"; whether all of the graph was
        accelerated. The last two are empty and False where the process failed.
    """
    import numpy as np

    with tempfile.TemporaryDirectory() as directory:
        given, made = (os.path.join(directory, name) for name in ("in.npy", "out.npz"))
        np.save(given, images)
        process = _call(
            _compiled,
            environment,
            path=os.path.abspath(path),
            images=given,
            outputs=made,
            gpu=gpu,
        )
        if process.returncode:
            return process, {}, False
        with np.load(made) as arrays:
            return process, dict(arrays), json.loads(process.stdout.splitlines()[-1])


def _call(function, environment=None, **arguments):
    """Calls a function of this file in a new process, which prints its result as JSON."""
    root = str(pathlib.Path(keras_vit.__file__).parents[1])
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    search_path = os.pathsep.join([root, *map(os.path.abspath, given)])
    return subprocess.run(
        [sys.executable, "-m", _MODULE, function.__name__, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        # The current folder comes first on the path; files of the user's may have a module's name.
        cwd=root,
        env={**os.environ, "PYTHONPATH": search_path, **(environment or {})},
    )


def _measured(path: str, threads: int, image_size: list[int], rounds: int) -> dict[str, Any]:
    load = _prepare_tensorflow(threads) if os.path.isdir(path) else _prepare_litert(threads)
    start = time.perf_counter()
    call, details = load(path, image_size)
    loaded = time.perf_counter()
    call()
    first = time.perf_counter()
    peak = _peak_memory()
    return {
        "load_seconds": loaded - start,
        "first_call_seconds": first - loaded,
        "latency_ms": 1000 * _median(call, rounds),
        "peak_memory_bytes": peak,
        **details(),
    }


def _median(call: Callable[[], Any], rounds: int) -> float:
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < rounds and (not times or time.perf_counter() - start < SECONDS):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def _peak_memory() -> int:
    """Returns the largest resident memory so far, in bytes."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # getrusage would return the peak of the process that started this one.
        (line,) = [x for x in status.read_text().splitlines() if x.startswith("VmHWM")]
        return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _prepare_litert(threads):
    """Imports LiteRT, whose import is not the artifact's cost; returns what loads a file."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    def load(path, image_size):
        interpreter = Interpreter(path, num_threads=threads)
        runner = interpreter.get_signature_runner("serving_default")
        inputs = {
            name: np.full(detail["shape"], 0.5, detail["dtype"])
            for name, detail in runner.get_input_details().items()
        }
        return (lambda: runner(**inputs)), (lambda: delegation(interpreter))

    return load


def _prepare_tensorflow(threads):
    """Imports TensorFlow, whose import is not the module's cost; returns what loads a module."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def load(path, image_size):
        signature = tf.saved_model.load(path).signatures["serving_default"]
        inputs = {
            name: tf.fill([1, *image_size, 3], 0.5)
            for name in signature.structured_input_signature[1]
        }
        return (lambda: [value.numpy() for value in signature(**inputs).values()]), dict

    return load


def delegation(interpreter: Any) -> dict[str, Any]:
    """Counts the delegate's partitions and the operations that it left to the interpreter.

    Args:
        interpreter: a LiteRT `Interpreter` whose tensors are allocated.

    Returns:
        dict of "partitions", an int, and "operations_outside_delegate", of names to counts.
    """
    # LiteRT documents no way to ask which operations a delegate took. A delegate's node stays in
    # this list beside the operations that it replaces: those between its outputs and its inputs.
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


def _compiled(path: str, images: str, outputs: str, gpu: bool) -> bool:
    """Writes the outputs as .npz, and returns whether all of the graph was accelerated."""
    import numpy as np

    inputs = np.load(images)
    results = {}
    results["float32"], complete = _run_compiled(path, inputs, gpu)
    if gpu:
        results["float16"], _ = _run_compiled(path, inputs, gpu, float16=True)
    np.savez(outputs, **results)
    return complete


def _run_compiled(path, images, gpu, float16=False):
    """Returns (outputs, whether all of the graph was accelerated)."""
    import numpy as np
    from ai_edge_litert.compiled_model import CompiledModel, HardwareAccelerator
    from ai_edge_litert.options import CpuOptions, GpuOptions, Options

    accelerators = HardwareAccelerator.CPU
    if gpu:
        accelerators |= HardwareAccelerator.GPU
    settings = Options(
        hardware_accelerators=accelerators,
        cpu_options=CpuOptions(num_threads=1),
        gpu_options=GpuOptions(enforce_f32=not float16) if gpu else None,
    )
    model = CompiledModel.from_file(path, options=settings)
    index = model.get_signature_index("serving_default")
    ((_, detail),) = model.get_output_tensor_details("serving_default").items()
    shape = tuple(map(int, detail["shape"]))
    inputs, outputs = model.create_input_buffers(index), model.create_output_buffers(index)
    results = []
    for image in images:
        inputs[0].write(image[None])
        model.run_by_index(index, inputs, outputs)
        results.append(outputs[0].read(int(np.prod(shape)), np.float32).reshape(shape))
    return np.concatenate(results), model.is_fully_accelerated()


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
