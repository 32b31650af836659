"""Artifacts in a process of their own, which imports their runtime alone.

So the memory is what an application would need, and what LiteRT prints can be read: which
operations a delegate refuses, and why, is only ever printed.
"""

import collections
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_vit.training.io.quiet_start import quick_imports

from ..errors import ExportError, RuntimeMissing

if TYPE_CHECKING:
    import numpy as np

ROUNDS = 25
SECONDS = 10.0
_NO_GPU = ("No adapters found", "GPU accelerator could not be loaded")
_MODULE = "keras_vit.export.verification.subprocesses"


def measure(
    path: str | os.PathLike, threads: int, image_size: tuple[int, int], rounds: int = ROUNDS
) -> dict[str, Any]:
    """Returns what a TFLite file or SavedModel costs, as attributes of a `Report`, in one process.

    Args:
        path: of the artifact, which is run on one image at a time.
        threads: of the runtime.
        image_size: (height, width) of the image if the artifact takes any.
        rounds: calls to take the median of, fewer if they last over 10 s.

    Raises `ExportError` if the artifact does not run.
    """
    found, _ = _call(_measured, path, threads=threads, image_size=image_size, rounds=rounds)
    return found


def run_compiled(
    path: str | os.PathLike,
    images: "np.ndarray",
    gpu: bool = False,
    environment: Mapping[str, str] | None = None,
) -> "tuple[dict[str, np.ndarray], bool, str]":
    """Runs images through a TFLite file in LiteRT's `CompiledModel` in a new process.

    Args:
        path: the file.
        images: (n, height, width, 3) float32 in [0, 1].
        gpu: whether on the GPU, in float32 and then in its float16, or on the processor.
        environment: variables beside those of this process.

    Returns:
        {"float32": outputs} and with `gpu` "float16"; whether all of the graph was accelerated;
        what LiteRT printed.

    Raises `RuntimeMissing` if there is no GPU; `ExportError` if the file does not run.
    """
    return _call_with_images(_compiled, path, images, environment, gpu=gpu)


def run_in_torch(
    path: str | os.PathLike, images: "np.ndarray", library: str
) -> "tuple[np.ndarray, str]":
    """Runs images, as of `run_compiled`, through a folder in transformers or timm in a new process.

    Returns the outputs, and the versions of the library and of PyTorch. Raises `RuntimeMissing` if
    they are not installed; `ExportError` if the folder does not run.
    """
    for package in (library, "torch"):
        if importlib.util.find_spec(package) is None:
            needed = f"pip install {library} torch torchvision"
            raise RuntimeMissing(f"Expected the package {package}. Install it: {needed}")
    found, versions, _ = _call_with_images(_in_torch, path, images, library=library)
    return found["outputs"], versions


def _call_with_images(function, path, images, environment=None, **arguments):
    """Calls a function that reads images from one file and writes outputs to another."""
    import numpy as np

    with tempfile.TemporaryDirectory() as directory:
        given, made = (os.path.join(directory, name) for name in ("in.npy", "out.npz"))
        np.save(given, images)
        arguments |= {"images": given, "outputs": made}
        result, printed = _call(function, path, environment, **arguments)
        with np.load(made) as arrays:
            return dict(arrays), result, printed


def _call(function, path, environment=None, **arguments):
    """Calls a function of this file in a new process, and returns its result and what is printed.

    JSON can hold its arguments, the path of an artifact among them, and its result. `environment`
    has variables beside those of this process.
    """
    arguments["path"] = os.path.abspath(path)
    process = subprocess.run(
        [sys.executable, "-m", _MODULE, function.__name__, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        # The current folder comes first on the path; files of the user's may have a module's name.
        cwd=pathlib.Path(str(sys.modules["keras_vit"].__file__)).parents[1],
        env={**os.environ, **(environment or {})},
    )
    if not process.returncode:
        return json.loads(process.stdout.splitlines()[-1]), process.stderr
    if any(sign in process.stderr for sign in _NO_GPU):
        raise RuntimeMissing(
            "Expected a GPU. LiteRT found none that its Vulkan driver can use: install the GPU's "
            "driver, or set VK_ICD_FILENAMES to that of Chromium (vk_swiftshader_icd.json)."
        )
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    raise ExportError(
        f"{path} does not run in a process of its own, which ended with status "
        f"{process.returncode}: {' '.join(lines[-3:])[-500:]}. Export the model again."
    )


def _measured(path: str, threads: int, image_size: list[int], rounds: int) -> dict[str, Any]:
    library, load = "ai_edge_litert.interpreter", _open_file
    if os.path.isdir(path):
        library, load = "tensorflow", _open_module
    # Neither its time is the artifact's cost, nor what else is installed and imported with it.
    with quick_imports():
        importlib.import_module(library)
    start = time.perf_counter()
    call, details = load(path, threads, image_size)
    loaded = time.perf_counter()
    call()
    first = time.perf_counter()
    peak = peak_memory()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < rounds and (not times or time.perf_counter() < end):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return {
        "load_seconds": loaded - start,
        "first_call_seconds": first - loaded,
        "latency_ms": 1000 * statistics.median(times),
        "peak_memory_bytes": peak,
        **details(),
    }


def peak_memory(process: int | str = "self") -> int:
    """Returns the most memory that a process has held, in bytes; 0 once it is gone.

    Args:
        process: its number; other processes than this one are known on Linux alone.
    """
    # On Linux `ru_maxrss` would count what the parent held when it started this process.
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return 1024 * int(found[1]) if found else 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if process == "self" else 0


def _open_file(path, threads, image_size):
    """Returns what runs a TFLite file, and what counts its operations."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=threads)
    runner = interpreter.get_signature_runner("serving_default")
    image = np.full(runner.get_input_details()["image"]["shape"], 0.5, "float32")
    return (lambda: runner(image=image)), (lambda: _delegation(interpreter))


def _open_module(path, threads, image_size):
    """Returns what runs a SavedModel, and what finds no more."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    signature = tf.saved_model.load(path).signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    images = {name: tf.fill([1, *image_size, 3], 0.5)}
    return (lambda: [value.numpy() for value in signature(**images).values()]), dict


def _delegation(interpreter):
    """Returns "partitions" and "operations_outside_delegate" of a `Report`."""
    # LiteRT documents no way to ask which operations a delegate took. A delegate's node stays in
    # this list beside the operations that it replaces: those between its outputs and its inputs.
    nodes = interpreter._get_ops_details()
    partitions = [node for node in nodes if node["op_name"] == "DELEGATE"]
    plain = [node for node in nodes if node["op_name"] != "DELEGATE"]
    producer = {t: i for i, node in enumerate(plain) for t in node["outputs"]}
    replaced = set()
    for partition in partitions:
        known, pending = {*partition["inputs"]}, [*partition["outputs"]]
        while pending:
            tensor = pending.pop()
            if tensor in producer and tensor not in known:
                known.add(tensor)
                replaced.add(producer[tensor])
                pending.extend(plain[producer[tensor]]["inputs"])
    outside = [node["op_name"] for i, node in enumerate(plain) if i not in replaced]
    return {
        "partitions": len(partitions),
        "operations_outside_delegate": dict(sorted(collections.Counter(outside).items())),
    }


def _compiled(path: str, images: str, outputs: str, gpu: bool) -> bool:
    """Writes the outputs as .npz, and returns whether all of the graph was accelerated."""
    import numpy as np
    from ai_edge_litert.compiled_model import CompiledModel, HardwareAccelerator
    from ai_edge_litert.options import CpuOptions, GpuOptions, Options

    accelerators = HardwareAccelerator.CPU
    if gpu:
        accelerators |= HardwareAccelerator.GPU
    results: dict[str, Any] = {}
    complete = []
    for precision in ("float32", "float16") if gpu else ("float32",):
        settings = Options(
            hardware_accelerators=accelerators,
            cpu_options=CpuOptions(num_threads=1),
            gpu_options=GpuOptions(enforce_f32=precision == "float32") if gpu else None,
        )
        model = CompiledModel.from_file(path, options=settings)
        index = model.get_signature_index("serving_default")
        ((_, detail),) = model.get_output_tensor_details("serving_default").items()
        shape = tuple(map(int, detail["shape"]))
        given, made = model.create_input_buffers(index), model.create_output_buffers(index)
        rows = []
        for image in np.load(images):
            given[0].write(image[None])
            model.run_by_index(index, given, made)
            rows.append(made[0].read(int(np.prod(shape)), np.float32).reshape(shape))
        results[precision] = np.concatenate(rows)
        complete.append(model.is_fully_accelerated())
    np.savez(outputs, **results)
    return complete[0]


def _in_torch(path: str, images: str, outputs: str, library: str) -> str:
    """Writes the logits or the representation as .npz, and returns the versions."""
    import numpy as np
    import torch

    module = importlib.import_module(library)
    photos = np.rint(255 * np.load(images)).astype("uint8")
    if library == "timm":
        model = module.create_model(f"local-dir:{path}", pretrained=True).eval()
        mean, std = (np.array(model.pretrained_cfg[key]) for key in ("mean", "std"))
        pixels = torch.tensor((photos / 255 - mean) / std).permute(0, 3, 1, 2).float()
    else:
        names = module.AutoConfig.from_pretrained(path).architectures[0]
        classifies = names.endswith("Classification")
        kind = module.AutoModelForImageClassification if classifies else module.AutoModel
        model, found = kind.from_pretrained(path, output_loading_info=True)
        # The pooler of `ViTModel` is not read here.
        if missing := [name for name in found["missing_keys"] if "pooler" not in name]:
            raise ValueError(f"it lacks {', '.join(missing)}")
        processor = module.AutoImageProcessor.from_pretrained(path)
        sized = {"do_resize": False, "do_center_crop": False, "return_tensors": "pt"}
        pixels = processor(list(photos), **sized)["pixel_values"]
    with torch.no_grad():
        given = model.eval()(pixels)
    if library == "transformers":
        pooled = "pooler_output" if "Siglip" in names else "last_hidden_state"
        given = given.logits if classifies else given[pooled]
        given = given[:, 0] if given.ndim == 3 else given
    np.savez(outputs, outputs=given.numpy())
    return f"{library} {module.__version__}, PyTorch {torch.__version__}"


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
