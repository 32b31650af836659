"""Exported files: the texts inside of them, and TFLite and ONNX files on the processor."""

import functools
import importlib
import json
import math
import os
import pathlib
import queue
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np

from keras_vit.errors import damage_named, missing_extra
from keras_vit.files.archives import open_archive
from keras_vit.models.image_model import ACTIVATIONS

from ..errors import UsageError
from ..io.paths import read_text
from ..io.quiet_start import quiet_start

# Names of the texts inside of exported files, which `export` writes.
LABELS_FILE = "labels.txt"
INTERFACE_FILE = "interface.json"
Runtime = Literal["litert", "openvino"]
RUNTIMES = get_args(Runtime)
_SIGNATURE = "serving_default"
# Bytes of a file, from which OpenVINO is as fast as LiteRT or faster, given bfloat16: ViT-S.
_LARGE = 2**26
# Upper limits for a tensor's size, against damaged shapes: a multiple of the next largest tensor
# and the file, and bytes that are allowed in any case.
_LARGEST_RATIO = 64
_HARMLESS = 2**24
# `quiet_start` holds back what the whole process prints.
_STARTING = threading.Lock()


def labels_of(path: str | os.PathLike) -> list[str] | None:
    """Returns the class names inside of a module, TFLite or ONNX file, or None without any.

    Raises ValueError if they are damaged.
    """
    return _inside(pathlib.Path(path), LABELS_FILE, str.splitlines)


def interface_of(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the `interface.json` inside of a module, TFLite or ONNX file, or {}.

    Raises ValueError if it is damaged.
    """
    return _inside(pathlib.Path(path), INTERFACE_FILE, _interface) or {}


def _inside(path, name, parse):
    """Returns the text of that name inside of an exported file, parsed, or None without one."""
    with damage_named(f"The texts inside of {path} are damaged"):
        if path.is_dir():
            file = path / "assets" / name
            return parse(read_text(file)) if file.is_file() else None
        if path.suffix == ".onnx":
            content = _import("onnx", "onnx").load(path, load_external_data=False)
            texts = {each.key: each.value for each in content.metadata_props}
            found = texts.get("labels" if name == LABELS_FILE else name)
            return None if found is None else parse(found)
        if zipfile.is_zipfile(path):
            with path.open("rb") as stream, open_archive(stream) as archive:
                found = name in archive.namelist()
                return parse(archive.read(name).decode("utf-8")) if found else None
        # The texts are an archive behind the model, and their names outlive its end.
        if any(each.encode() in path.read_bytes() for each in (LABELS_FILE, INTERFACE_FILE)):
            raise ValueError("the end of the file is missing")


def _interface(text):
    interface = json.loads(text)
    if not isinstance(interface, dict):
        raise ValueError("its interface.json is no object")
    if not isinstance(interface.get("preprocessing", ""), str):
        raise ValueError(f"its preprocessing is {interface['preprocessing']!r}")
    for key in ("activation", "activation_inside"):
        if interface.get(key) not in (None, "none", *ACTIVATIONS):
            raise ValueError(f"its {key} is {interface[key]!r}")
    return interface


class TFLiteFunction:
    """A TFLite file as a function of images in [0, 1]; several threads may call it, one process.

    Args:
        path: the .tflite file; it is mapped, not copied.
        runtime: one of `RUNTIMES`; None is OpenVINO on a processor with instructions for bfloat16,
            for a file that is all in float32 and larger than 64 MiB, where it is installed, or
            computed in bfloat16, and otherwise LiteRT.
        threads: of the computation; None takes every core that the process may use.
        at_once: images that are computed side by side, as far as `threads` can be divided among
            them. LiteRT holds its own copy of the weights for each.
        bfloat16: whether OpenVINO computes in bfloat16, where the processor can.

    Attributes:
        image_shape: (height, width, channels).
        output: the name of its output, such as "logits".
        output_shape: of one image.
        of_one_image: whether the first axis of images and outputs is that of the images.
        runtime: the one that computes.
        signatures: names of all that the file has.

    Raises:
        ValueError: if the file is damaged, has a tensor that claims far more memory than all
            others, or is not from `image` to one output.
        UsageError: if the runtime is not one of `RUNTIMES`, or is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        runtime: str | None = None,
        threads: int | None = None,
        at_once: int = 1,
        bfloat16: bool = False,
    ) -> None:
        from ai_edge_litert.interpreter import Interpreter

        if runtime not in (None, *RUNTIMES):
            expected = f"Expected the runtime {' or '.join(RUNTIMES)} of a .tflite file"
            raise UsageError(f"{expected}. Received: {runtime!r}")
        threads = threads or _cores()
        streams = next(n for n in range(min(threads, at_once), 0, -1) if threads % n == 0)
        self._path, self._idle = os.fspath(path), queue.SimpleQueue[Callable]()
        self._process = os.getpid()
        self._side_by_side = ThreadPoolExecutor(streams).map if streams > 1 else map
        interpreter = functools.partial(Interpreter, self._path, num_threads=threads // streams)
        with _STARTING, quiet_start():
            with self._damage_named("LiteRT"):
                first = interpreter()
                self._describe(first)
            self.runtime = runtime or self._faster(bfloat16)
            if self.runtime == "litert":
                with self._damage_named("LiteRT"):
                    for each in (first, *(interpreter() for _ in range(streams - 1))):
                        each.allocate_tensors()
                        self._idle.put(functools.partial(_litert, each, self.output))
            else:
                # With several streams OpenVINO 2026.4 makes wrong products of quantized weights.
                streams = streams if self._all_floats else 1
                for request in self._requests(threads, streams, "bf16" if bfloat16 else "f32"):
                    self._idle.put(functools.partial(_openvino, request))

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Returns the outputs (n, …) of images (n, height, width, 3) float32 in [0, 1].

        Raises RuntimeError in a fork of the process that opened the file, ValueError for images of
        another size.
        """
        if images.shape[1:] != self.image_shape:
            # LiteRT would take them, and enlarge its graph.
            raise ValueError(
                f"Expected images of shape (n, {', '.join(map(str, self.image_shape))}) for "
                f"{self._path}. Received: {images.shape}"
            )
        if os.getpid() != self._process:
            raise RuntimeError(
                f"Expected a call in process {self._process}, which opened {self._path}. Received: "
                f"a call in its fork {os.getpid()}, which lacks the threads of {self.runtime}. "
                "Open the file in each process, or start them by multiprocessing's spawn."
            )
        with self._damage_named(self.runtime):
            several = self._side_by_side if len(images) > 1 else map
            return np.concatenate(list(several(self._run, images)))

    def _run(self, image):
        runner = self._idle.get()
        try:
            return runner(image[None])
        finally:
            self._idle.put(runner)

    def _describe(self, interpreter):
        _check_claims(interpreter, os.path.getsize(self._path))
        self.signatures = interpreter.get_signature_list()
        signature = self.signatures.get(_SIGNATURE, {})
        inputs, outputs = signature.get("inputs", []), signature.get("outputs", [])
        if inputs != ["image"] or len(outputs) != 1:
            raise ValueError(
                f"expected a signature {_SIGNATURE} from `image` to one output, as `keras-vit "
                f"export tflite` writes. Received: from {inputs} to {outputs}"
            )
        (image,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()
        shapes = [tuple(map(int, each["shape_signature"])) for each in (image, output)]
        fixed = all(min(shape[1:], default=0) > 0 for shape in shapes)
        floats = all(each["dtype"] is np.float32 for each in (image, output))
        if len(shapes[0]) != 4 or not (fixed and floats):
            raise ValueError(
                "expected float32 of shapes (1, height, width, channels) and (1, …). Received: "
                f"{image['dtype'].__name__} {shapes[0]} and {output['dtype'].__name__} {shapes[1]}"
            )
        self.of_one_image = {shapes[0][0], shapes[1][0]} <= {1, -1}
        self.image_shape, (self.output,) = shapes[0][1:], outputs
        self.output_shape = shapes[1][1:]
        types = {each["dtype"] for each in interpreter.get_tensor_details()}
        self._all_floats = types <= {np.float32, np.int32, np.bool_}

    def _faster(self, bfloat16):
        """Returns the runtime that `benchmarks compare_runtimes` shows to be the faster one."""
        large = os.path.getsize(self._path) > _LARGE and self._all_floats
        if not (bfloat16 or (large and find_spec("openvino"))):
            return "litert"
        able = (
            _import("openvino", "openvino").Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        )
        return "openvino" if "BF16" in able else "litert"

    def _requests(self, threads, streams, precision):
        openvino = _import("openvino", "openvino")
        options = {
            # By default it computes in bfloat16 on processors that have it.
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": streams,
        }
        # The first array of a process that it takes would hang in two threads at once.
        openvino.Tensor(np.zeros(1, np.float32))
        with self._damage_named("OpenVINO"):
            compiled = openvino.Core().compile_model(self._path, "CPU", options)
            return [compiled.create_infer_request() for _ in range(streams)]

    def _damage_named(self, runtime):
        return damage_named(f"{self._path} cannot be run by {runtime}")


class ONNXFunction:
    """An .onnx file as a function of images in [0, 1], in ONNX Runtime on the processor.

    Args:
        path: the .onnx file.
        refused: turns errors into those of damage, as `damage_named`.

    Attributes:
        image_shape: (height, width, channels).
        output: the name of its output, such as "logits".
        runtime: "onnxruntime".
        signatures: none.
        weights: paths of the files beside it that hold arrays.
        types: names of the types of its arrays that are used.

    Raises:
        ValueError: if the file is damaged, or is not from `image` to one output.
        UsageError: if ONNX Runtime is not installed.
    """

    runtime, signatures = "onnxruntime", ()

    def __init__(self, path: str | os.PathLike, refused: Callable = damage_named) -> None:
        onnx, onnxruntime = _import("onnx", "onnx"), _import("onnxruntime", "onnx")
        self._path, options = pathlib.Path(path), onnxruntime.SessionOptions()
        options.log_severity_level = 4  # its errors are raised as well
        self._refused = refused
        with refused(f"{path} cannot be loaded by ONNX Runtime"):
            graph = onnx.load(path, load_external_data=False).graph
            used = {name for node in graph.node for name in node.input}
            arrays = [each for each in graph.initializer if each.name in used]
            places = {e.value for a in arrays for e in a.external_data if e.key == "location"}
            self.weights = [self._path.parent / place for place in sorted(places)]
            self.types = {onnx.TensorProto.DataType.Name(each.data_type) for each in arrays}
            self._session = onnxruntime.InferenceSession(
                os.fspath(path), options, providers=["CPUExecutionProvider"]
            )
            inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
            given, made = ([each.name for each in ends] for ends in (inputs, outputs))
            if given != ["image"] or len(made) != 1:
                raise ValueError(
                    "expected a file from `image` to one output, as `keras-vit export onnx` "
                    f"writes. Received: from {given} to {made}"
                )
            _, height, width, channels = inputs[0].shape
            (self.output,), self.image_shape = made, (height, width, channels)

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Returns the outputs (n, …) of images (n, height, width, 3) float32 in [0, 1]."""
        with self._refused(f"{self._path} cannot be run by ONNX Runtime"):
            return self._session.run(None, {"image": images})[0]


def signature_of(path: pathlib.Path, name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Returns one of `TFLiteFunction.signatures` as a function of images, as the main one."""
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(os.fspath(path), num_threads=_cores()).get_signature_runner(name)
    return lambda images: np.concatenate(
        [next(iter(run(image=image[None]).values())) for image in np.asarray(images, "float32")]
    )


def _litert(interpreter, output, image):
    return interpreter.get_signature_runner(_SIGNATURE)(image=image)[output]


def _openvino(request, image):
    # Its outputs are overwritten by the next call.
    return request.infer([image], share_inputs=True)[0].copy()


def _import(module, extra):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(missing_extra(module, extra, error)) from error


def _cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _check_claims(interpreter, file_size):
    """Refuses a damaged shape before LiteRT takes the memory that it asks for."""
    for graph in range(interpreter.num_subgraphs()):
        sizes = [(0, ""), (0, "")]
        for each in interpreter.get_tensor_details(graph):
            count = math.prod(map(int, each["shape"]))
            sizes.append((count * np.dtype(each["dtype"]).itemsize, each["name"]))
        (second, _), (largest, name) = sorted(sizes)[-2:]
        if largest > max(_HARMLESS, _LARGEST_RATIO * (second + file_size)):
            raise ValueError(
                f"The tensor {name} claims {largest} bytes, the next largest {second}, and the "
                f"file has {file_size}: its shape is damaged."
            )
