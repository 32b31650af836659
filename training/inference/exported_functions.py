"""Exported files and modules as functions of images: TFLite, ONNX, TF-Hub."""

import functools
import hashlib
import math
import os
import pathlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np

from keras_vit.checkpoints.model_source import Kind, model_source
from keras_vit.errors import damage_named, imported
from keras_vit.type_hints import Tensor

from ..errors import UsageError
from ..io.quiet_start import quiet_start
from .image_function import ImageFunction, one_array
from .interface import Interface

Runtime = Literal["litert", "openvino"]
RUNTIMES = get_args(Runtime)
_SIGNATURE = "serving_default"
# Bytes of a file, from which OpenVINO is as fast as LiteRT or faster, given bfloat16: ViT-S.
_LARGE = 2**26
# Upper limits for a tensor's size, against damaged shapes: a multiple of the next largest tensor
# and the file, and bytes that are allowed in any case.
_LARGEST_RATIO = 64
_HARMLESS = 2**24
# Copies of a TFLite file's weights in memory, at most.
_AT_ONCE = 4
# `quiet_start` holds back what the whole process prints.
_STARTING = threading.Lock()


class ExportedFunction(ImageFunction):
    """An exported file or module as a function of images."""

    path: pathlib.Path
    files: list[pathlib.Path]  # all that it consists of
    runtime = ""  # the name of what computes
    output = ""  # the name of its output, such as "logits", where the file says it
    image_shape: tuple[int, int, int]  # (height, width, channels)
    output_shape: tuple[int, ...] = ()  # of one image, where the file says it
    _lacking = ""  # what a file lacks that gives no features

    @functools.cached_property
    def interface(self) -> Interface:  # type: ignore[override]
        """As the texts inside say, where there are any."""
        return Interface.of_file(self.path, self.image_shape[:2], self.output)

    def features(self, images: Tensor) -> np.ndarray:
        if self.output in ("logits", "probabilities"):
            raise ValueError(
                f"Expected a file with {self._lacking} adds. Received: {self.path}, which gives "
                f"{self.output} alone."
            )
        return self(images)

    @property
    def identity(self) -> str:  # type: ignore[override]
        """A digest of its files and of what its features are."""
        digest = hashlib.sha256(self.feature_name.encode())
        for file in self.files:
            digest.update(os.path.relpath(file, self.path).encode())
            digest.update(file.read_bytes())
        return digest.hexdigest()


def open_exported(
    path: str | os.PathLike, *, layer: str | None = None, runtime: str | None = None
) -> ExportedFunction | None:
    """Opens an exported file or module as a function of images; None of what is none.

    `layer` is the attribute of a module that gives features, and `runtime` is of a .tflite file, as
    `TFLiteFunction` takes it. Raises ValueError or UsageError if it cannot be used.
    """
    kind = model_source(path).kind
    if kind is Kind.HUB:
        return ModuleFunction(path, layer)
    if kind not in (Kind.TFLITE, Kind.ONNX):
        return None
    if layer is not None:
        raise ValueError(f"Expected a Keras model or module for layer={layer!r}. It is {path}.")
    is_onnx = kind is Kind.ONNX
    return ONNXFunction(path) if is_onnx else TFLiteFunction(path, runtime, at_once=_AT_ONCE)


class TFLiteFunction(ExportedFunction):
    """A TFLite file; several threads may call it, in one process.

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
        of_one_image: whether the first axis of images and outputs is that of the images.
        signatures: names of all that the file has.

    Raises `ValueError` if the file is damaged, has a tensor that claims far more memory than all
    others, or is not from `image` to one output; `UsageError` if the runtime is not one of
    `RUNTIMES`, or is not installed.
    """

    _lacking = "the signature feature_vector, which `keras-vit export tflite --feature_vector`"

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
        self.path, self._idle = pathlib.Path(path), queue.SimpleQueue[Callable]()
        self._process = os.getpid()
        self._side_by_side = ThreadPoolExecutor(streams).map if streams > 1 else map
        interpreter = functools.partial(
            Interpreter, os.fspath(path), num_threads=threads // streams
        )
        with _STARTING, quiet_start():
            with self._damage_named("LiteRT"):
                first = interpreter()
                self._describe(first)
            self.runtime = runtime or self._faster(bfloat16)
            self.name, self.files = f"{path} in {self.runtime}", [self.path]
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

    def __call__(self, images: Tensor) -> np.ndarray:
        """Also raises RuntimeError in a fork of the process that opened the file."""
        images = np.asarray(images, "float32")
        if images.shape[1:] != self.image_shape:
            # LiteRT would take them, and enlarge its graph.
            raise ValueError(
                f"Expected images of shape (n, {', '.join(map(str, self.image_shape))}) for "
                f"{self.path}. Received: {images.shape}"
            )
        if os.getpid() != self._process:
            raise RuntimeError(
                f"Expected a call in process {self._process}, which opened {self.path}. Received: "
                f"a call in its fork {os.getpid()}, which lacks the threads of {self.runtime}. "
                "Open the file in each process, or start them by multiprocessing's spawn."
            )
        with self._damage_named(self.runtime):
            several = self._side_by_side if len(images) > 1 else map
            return np.concatenate(list(several(self._run, images)))

    def features(self, images: Tensor) -> np.ndarray:
        return self._features(np.asarray(images, "float32"))

    @functools.cached_property
    def _features(self):
        if "feature_vector" not in self.signatures:
            return super().features
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(os.fspath(self.path), num_threads=_cores())
        run = interpreter.get_signature_runner("feature_vector")
        return lambda images: np.concatenate(
            [next(iter(run(image=image[None]).values())) for image in images]
        )

    def _run(self, image):
        runner = self._idle.get()
        try:
            return runner(image[None])
        finally:
            self._idle.put(runner)

    def _describe(self, interpreter):
        _check_claims(interpreter, os.path.getsize(self.path))
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
        large = os.path.getsize(self.path) > _LARGE and self._all_floats
        if not (bfloat16 or (large and find_spec("openvino"))):
            return "litert"
        core = imported("openvino", "openvino", UsageError).Core()
        able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return "openvino" if "BF16" in able else "litert"

    def _requests(self, threads, streams, precision):
        openvino = imported("openvino", "openvino", UsageError)
        options = {
            # By default it computes in bfloat16 on processors that have it.
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": streams,
        }
        # The first array of a process that it takes would hang in two threads at once.
        openvino.Tensor(np.zeros(1, np.float32))
        with self._damage_named("OpenVINO"):
            compiled = openvino.Core().compile_model(os.fspath(self.path), "CPU", options)
            return [compiled.create_infer_request() for _ in range(streams)]

    def _damage_named(self, runtime):
        return damage_named(f"{self.path} cannot be run by {runtime}")


class ONNXFunction(ExportedFunction):
    """An .onnx file, in ONNX Runtime on the processor.

    Attributes:
        types: names of the types of its arrays that are used.

    Raises `ValueError` if the file is damaged, or is not from `image` to one output; `UsageError`
    if ONNX Runtime is not installed.
    """

    runtime = "onnxruntime"
    _lacking = "a representation, which `keras-vit export onnx --module_output=representation`"

    def __init__(self, path: str | os.PathLike) -> None:
        onnx = imported("onnx", "onnx", UsageError)
        onnxruntime: Any = imported("onnxruntime", "onnx", UsageError)
        self.path, options = pathlib.Path(path), onnxruntime.SessionOptions()
        options.log_severity_level = 4  # its errors are raised as well
        self.name = f"{path} in {self.runtime}"
        with damage_named(f"{path} cannot be loaded by ONNX Runtime"):
            graph = onnx.load(path, load_external_data=False).graph
            used = {name for node in graph.node for name in node.input}
            arrays = [each for each in graph.initializer if each.name in used]
            places = {e.value for a in arrays for e in a.external_data if e.key == "location"}
            self.files = [self.path, *(self.path.parent / place for place in sorted(places))]
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

    def __call__(self, images: Tensor) -> np.ndarray:
        with damage_named(f"{self.path} cannot be run by ONNX Runtime"):
            return self._session.run(None, {"image": np.asarray(images, "float32")})[0]


class ModuleFunction(ExportedFunction):
    """The directory of a TF-Hub module.

    Args:
        path: of the directory.
        layer: the attribute that gives features, or "output" for what calling the module returns;
            None takes `feature_vector`, where there is one, and else the output.
        load: returns the module of a path; None is `tf.saved_model.load`.

    Attributes:
        module: as it is loaded.

    Raises `ValueError` if it is damaged, cannot be called, or has no such attribute.
    """

    def __init__(
        self, path: str | os.PathLike, layer: str | None = None, load: Callable | None = None
    ) -> None:
        import tensorflow as tf

        self.path, self.name = pathlib.Path(path), str(path)
        self.files = sorted(file for file in self.path.rglob("*") if file.is_file())
        with damage_named(f"{path} cannot be loaded as a TF-Hub module"):
            self.module = module = (load or tf.saved_model.load)(str(path))
        if not callable(module):
            raise ValueError(
                f"Expected a TF-Hub module that can be called on images. Received: {path}, a "
                "SavedModel with signatures only; `keras-vit export hub` writes callable ones."
            )
        if layer is None:
            layer = "feature_vector" if hasattr(module, "feature_vector") else "output"
        self._features: Any = module if layer == "output" else getattr(module, layer, None)
        if not callable(self._features):
            expected = f"Expected a callable attribute of the module {path}"
            raise ValueError(f"{expected}. Received: {layer}")
        traces = getattr(module.__call__, "concrete_functions", [])
        specs = (each for trace in traces for each in trace.structured_input_signature[0])
        shapes = (each.shape for each in specs if getattr(each, "shape", None) is not None)
        _, *size, _ = next((shape for shape in shapes if len(shape) == 4), [None] * 4)
        height, width = (side or 224 for side in size)
        self.feature_name, self.image_shape = layer, (height, width, 3)

    def __call__(self, images: Tensor) -> np.ndarray:
        found = one_array(self.module(images))
        if found.shape[:1] != (len(images),) or found.dtype.kind in "OSU":
            raise ValueError(
                f"Expected a module that gives numbers for each of {len(images)} images. Received: "
                f"{self.path}, which gives {found.dtype} of shape {found.shape}."
            )
        return found

    def features(self, images: Tensor) -> np.ndarray:
        return one_array(self._features(images))


def _litert(interpreter, output, image):
    return interpreter.get_signature_runner(_SIGNATURE)(image=image)[output]


def _openvino(request, image):
    # Its outputs are overwritten by the next call.
    return request.infer([image], share_inputs=True)[0].copy()


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
