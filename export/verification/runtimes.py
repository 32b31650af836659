"""Opens exported files in their runtimes.

A new runtime is a function like `_open_onnx`, or of TFLite files like `_run_on_gpu`, and a row of
`_OPEN` and of `RUNTIMES`.
"""

import dataclasses
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from keras_vit.analysis import class_maps
from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.library_configs import CONFIG, json_beside
from keras_vit.checkpoints.model_source import Kind, model_source
from keras_vit.models.image_model import ACTIVATIONS
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from keras_vit.training.inference.exported_functions import (
    ModuleFunction,
    ONNXFunction,
    TFLiteFunction,
)
from keras_vit.training.inference.interface import image_size, model_operations
from keras_vit.type_hints import Tensor

from ..errors import ExportError, RuntimeMissing, damage_refused, imported
from ..hub.to_hub import endpoint_model
from ..supported_models import activation_between, output_name
from ..tflite.flatbuffer import TFLiteFile
from ..tflite.mediapipe_metadata import metadata_of
from ..tflite.to_tflite import MAIN, signatures
from ..web.to_web import litert_js, write_page
from . import NPZ, ONNX, RUNTIMES, SAVED_MODEL, TFLITE, TIMM, TRANSFORMERS
from .browser import chromium, served
from .subprocesses import run_compiled, run_in_torch

BATCH = 8
# Types of the arrays of an ONNX file that no quantizer wrote.
_UNQUANTIZED = {"FLOAT", "FLOAT16", "INT32", "INT64", "BOOL"}
_SUFFIXES = {".tflite": TFLITE, ".npz": NPZ, ".onnx": ONNX}

CHOSEN = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
DRIVERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
# Each with SwiftShader, a Vulkan in software, and the loader that finds it.
BROWSERS = ("/usr/lib/chromium", "/opt/google/chrome", "/usr/lib/chromium-browser")
SOFTWARE, LOADER = "vk_swiftshader_icd.json", "libvulkan.so.1"
_ADAPTER = re.compile(r"Selected adapter: (.*)")
_REFUSED = re.compile(r"not supported by GPU delegate:\n(.*?)^\d+ operations", re.S | re.M)
_IMAGES = "images.bin"
# Milliseconds: the largest models have a gigabyte.
_LOADING = 300_000
_RUN = """async ([backend, precisions, file, count]) => {
  const runtime = await import("page/runtime");
  const reason = (await runtime.backends())[backend];
  if (reason) return { reason };
  const images = new Float32Array(await (await fetch(file)).arrayBuffer());
  const size = images.length / count;
  const outputs = [];
  let complete = true;
  for (const precision of precisions) {
    await runtime.open(backend, undefined, precision);
    complete &&= runtime.isFullyAccelerated();
    const rows = [];
    for (let i = 0; i < count; i++)
      rows.push(Array.from((await runtime.run(images.slice(i * size, (i + 1) * size))).values));
    outputs.push(rows);
  }
  const adapter = await navigator.gpu?.requestAdapter();
  return {
    outputs,
    complete,
    adapter: adapter ? `${adapter.info.vendor} ${adapter.info.architecture}`.trim() : "",
  };
}"""


@dataclasses.dataclass(frozen=True)
class Delegation:
    """The part of a graph that an accelerator took."""

    device: str  # in its own words
    complete: bool  # whether all of the graph runs there
    fallbacks: tuple[str, ...] = ()  # the operations that do not, each "NAME: why"
    float16: np.ndarray | None = None  # outputs of its arithmetic in float16, where it has that


@dataclasses.dataclass(frozen=True)
class Artifact:
    """An exported file, opened by what will run it in the end."""

    kind: str  # key of `export.verification.report.THRESHOLDS`
    output: str  # "logits", "probabilities" or "representation"
    # From images (n, height, width, 3) float32 in [0, 1] to the outputs (n, …), and to what an
    # accelerator took, None where there is none.
    run: Callable[[np.ndarray], tuple[np.ndarray, Delegation | None]]
    image_size: tuple[int, int] | None = None  # None for any, or where the model says it
    output_shape: tuple[int, ...] = ()  # of one image, where the file says it
    # "softmax", "sigmoid" or "another function", which makes its probabilities, if it gives any.
    activation: str | None = None
    metadata: bytes = b""  # of a TFLite file, for MediaPipe
    applied: str = ""  # "softmax" or "sigmoid", if the runtime makes probabilities of the logits
    takes_bytes: bool = False  # whether it rounds pixels to bytes, as photos have them
    # From images to {name of a signature, endpoint or other call: its largest difference from the
    # model, in units of the largest output, but at least 1}.
    differences: Callable[[np.ndarray], dict[str, float]] | None = None


def in_batches(function: Callable[[np.ndarray], Tensor], images: np.ndarray) -> np.ndarray:
    """Returns what a function gives for all images, called on a few of them at a time."""
    batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
    return np.concatenate([keras.ops.convert_to_numpy(function(batch)) for batch in batches])


def open_hub(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens the directory of a TF-Hub module."""
    function = ModuleFunction(path, load=imported("tensorflow_hub", "hub").load)
    with damage_refused(f"{path} cannot be loaded as a SavedModel"):
        signature = function.module.signatures["serving_default"]
        output = "logits" if "logits" in signature.structured_outputs else "representation"
    (images,) = signature.structured_input_signature[1].values()
    sides = tuple(images.shape)[1:3]
    activation = _activation_of(signature, sides, model)
    return Artifact(
        kind="hub",
        output=output,
        run=lambda images: (in_batches(function, images), None),
        image_size=sides if all(sides) else None,
        activation=activation,
        differences=partial(_module_differences, function.module, model, output, activation),
    )


def _module_differences(module, model, output, activation, images):
    """Returns `Artifact.differences`: of signatures, features and endpoints of a module."""
    graph = endpoint_model(model, "fixed")
    in_bytes = np.rint(255 * images).astype("uint8")
    # Noise of another size and shape than the model's images, so that every way to resize differs.
    height, width = images.shape[1:3]
    noise = np.random.default_rng(0).integers(0, 256, (len(images), 2 * height, 3 * width, 3))
    photos = [tf.io.encode_png(each) for each in noise.astype("uint8")]
    prepare = Preprocess(model_operations(model), graph_only=True)
    prepared = np.stack([(prepare(photo, (0, 0)) + 1) / 2 for photo in photos])
    calls = {
        "serving_default": ({"images": images}, images),
        "serving_uint8": ({"images": in_bytes}, in_bytes.astype("float32") / 255),
        "serving_bytes": ({"image_bytes": photos}, prepared),
    }
    found = {}
    for name, (arguments, seen) in calls.items():
        if signature := module.signatures.get(name):
            arguments = {key: tf.convert_to_tensor(each) for key, each in arguments.items()}
            given, expected = signature(**arguments), graph(seen * 2 - 1, training=False)[output]
            found[name] = _difference(given[output], expected)
            if activation in ACTIVATIONS:
                error = _difference(_made(given), ACTIVATIONS[activation](expected))
                found[name] = max(found[name], error)
    if signature := module.signatures.get("class_maps"):
        classes = np.arange(len(images), dtype="int32") % model.output_shape[-1]
        given = signature(images=tf.constant(images), classes=tf.constant(classes))["maps"]
        found["class_maps"] = _difference(given, class_maps(model, images * 2 - 1, classes))
    expected = graph(images * 2 - 1, training=False)
    found["answer for one image"] = _difference(module(images[:1]), expected[output][:1])
    if hasattr(module, "serve"):
        found["serve"] = _difference(module.serve(images), expected[output])
    # The states of generators and of batch normalizations move with each call.
    if not model.non_trainable_variables and hasattr(module, "serve_train"):
        found["training=True"] = _difference(module(images, training=True), expected[output])
        found["serve_train"] = _difference(module.serve_train(images), expected[output])
    main = model.up_to(output)
    counts = [sum(np.prod(each.shape) for each in of.variables) for of in (module, main)]
    found["number of weights"] = float(abs(counts[0] - counts[1]))
    if hasattr(module, "feature_vector"):
        features = module.feature_vector(images)
        found["feature_vector"] = _difference(features, expected["representation"])
    if hasattr(module, "endpoints"):
        ends = module.endpoints(images)
        found |= {f"endpoint {key}": _difference(ends[key], expected[key]) for key in expected}
    return found


def _difference(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return float("inf")
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def _activation_of(signature, sides, model):
    """Names the function that a module makes its probabilities by, if it makes any."""
    if model is None or _made(signature.structured_outputs) is None:
        return None
    height, width = sides if all(sides) else image_size(model)
    given = signature(images=tf.zeros((1, height, width, 3)))
    return activation_between(given["logits"], _made(given)) or "another function"


def _made(outputs):
    """Returns what a signature makes of logits, numbers of which are values."""
    return outputs.get("probabilities", outputs.get("values"))


def _open_keras(path, model):
    """Opens a checkpoint, of the architecture of `model`."""
    copy = type(model).from_config(model.get_config())
    for weight in copy.weights:
        weight.assign(np.full(weight.shape, np.nan, "float32"))
    load_checkpoint(copy, path)

    def run(images):
        return in_batches(lambda batch: copy(batch * 2 - 1, training=False), images), None

    return Artifact("npz", output_name(model), run)


def _open_onnx(path, model=None):
    """Opens an .onnx file in ONNX Runtime, on the processor."""
    function = ONNXFunction(path)

    def run(images):
        return in_batches(function, images), Delegation("CPUExecutionProvider", True)

    def differences(images):
        expected = model.up_to(function.output)(images[:1] * 2 - 1, training=False)
        return {"answer for one image": _difference(run(images[:1])[0], expected)}

    kind = "float16" if "FLOAT16" in function.types else "onnx"
    if not function.types <= _UNQUANTIZED:
        kind = "onnx-quantized"
    others = differences if model and function.output in model.endpoints else None
    return Artifact(kind, function.output, run, function.image_shape[:2], differences=others)


def _open_folder(path, model, library):
    """Opens a folder of Hugging Face in transformers or timm, with their own normalization."""

    def run(images):
        outputs, device = run_in_torch(path, images, library)
        return outputs, Delegation(device, True)

    return Artifact("hugging_face", output_name(model), run, takes_bytes=True)


def _open_interpreter(path, model=None, runtime="litert", delegation=None):
    """Opens a .tflite file in LiteRT's interpreter, or in OpenVINO, on one thread."""
    file, function = TFLiteFile(path), TFLiteFunction(path, runtime, threads=1)
    # A quantized file ends with DEQUANTIZE.
    activation = None
    if function.output == "probabilities":
        activation = "sigmoid" if "LOGISTIC" in file.operations[-2:] else "softmax"
    others = partial(_signature_differences, path, model, activation)
    return Artifact(
        kind=file.quantization,
        output=function.output,
        run=lambda images: (function(images), delegation),
        image_size=function.image_shape[:2],
        output_shape=function.output_shape,
        activation=activation,
        metadata=metadata_of(file.tree),
        differences=others if model and runtime == "litert" else None,
    )


def _signature_differences(path, model, activation, images):
    """Returns `Artifact.differences`: of the signatures of a TFLite file beside its main one."""
    interpreter, found = Interpreter(os.fspath(path)), {}
    added = [name for name in interpreter.get_signature_list() if name != MAIN]
    for name, (graph, shape, output) in signatures(model, added, activation).items():
        sized = keras.ops.image.resize(images, shape[1:3], data_format="channels_last")
        sized = np.resize(np.clip(sized, 0, 1), shape)
        with damage_refused(f"The signature {name} of {path} cannot be run"):
            given = interpreter.get_signature_runner(name)(image=sized)
        expected = graph(sized * 2 - 1, training=False)
        found[f"signature {name}"] = _difference(given.get(output), expected)
    return found


def _open_openvino(path, model=None):
    """Opens a .tflite file in OpenVINO, on the processor."""
    device = imported("openvino", "openvino").Core().get_property("CPU", "FULL_DEVICE_NAME")
    return _open_interpreter(path, model, "openvino", Delegation(device, True))


def _of_tflite(run):
    """Returns what opens a .tflite file, which `run` runs in place of the interpreter."""

    def open_file(path, model=None):
        artifact = _open_interpreter(path)
        return dataclasses.replace(artifact, run=partial(run, path, artifact))

    return open_file


def _run_compiled(path, artifact, images):
    """Runs a .tflite file in LiteRT's `CompiledModel`, on one thread of the processor."""
    outputs, complete, _ = run_compiled(path, images)
    return outputs["float32"], Delegation("XNNPACK", complete)


def _run_on_gpu(path, artifact, images):
    """Runs a .tflite file in LiteRT's `CompiledModel`, on the GPU; the processor runs the rest."""
    outputs, complete, printed = run_compiled(path, images, True, vulkan_environment())
    adapter, refused = _ADAPTER.search(printed), _REFUSED.search(printed)
    # An adapter without float16 computes in float32, without a word.
    same = np.array_equal(outputs["float16"], outputs["float32"])
    return outputs["float32"], Delegation(
        device=adapter.group(1) if adapter else "GPU",
        complete=complete,
        fallbacks=tuple(map(str.strip, refused.group(1).splitlines())) if refused else (),
        float16=None if same else outputs["float16"],
    )


open_compiled, open_gpu = _of_tflite(_run_compiled), _of_tflite(_run_on_gpu)


def _open_mediapipe(path, model=None):
    """Opens a .tflite file in MediaPipe, which takes photos.

    Its `ImageClassifier` and `ImageEmbedder` give what the file gives; its `ImageSegmenter`
    probabilities.
    """
    artifact, applied = _open_interpreter(path), ""
    answers = _embedded if artifact.output == "representation" else _classified
    if answers is _classified and len(artifact.output_shape) == 3:
        answers, applied = _segmented, model.activation if artifact.output == "logits" else ""
    run = partial(_run_in_mediapipe, path, artifact, answers)
    return dataclasses.replace(artifact, run=run, applied=applied, takes_bytes=True)


def _run_in_mediapipe(path, artifact, answers, images):
    mediapipe = imported("mediapipe", "mediapipe")
    tasks = imported("mediapipe.tasks.python", "mediapipe")
    photos = (
        mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=pixels)
        for pixels in np.rint(255 * images).clip(0, 255).astype("uint8")
    )
    options = {"base_options": tasks.BaseOptions(model_asset_path=os.fspath(path))}
    with damage_refused(f"{path} cannot be run by MediaPipe"):
        rows = answers(tasks.vision, options, photos)
    return np.array(rows, "float32").reshape(len(images), *artifact.output_shape), None


def _classified(vision, options, photos):
    options = vision.ImageClassifierOptions(**options)
    with vision.ImageClassifier.create_from_options(options) as classifier:
        results = [classifier.classify(photo).classifications[0].categories for photo in photos]
    return [[each.score for each in sorted(row, key=lambda one: one.index)] for row in results]


def _embedded(vision, options, photos):
    options = vision.ImageEmbedderOptions(**options)
    with vision.ImageEmbedder.create_from_options(options) as embedder:
        return [embedder.embed(photo).embeddings[0].embedding for photo in photos]


def _segmented(vision, options, photos):
    options = vision.ImageSegmenterOptions(**options, output_confidence_masks=True)
    rows = []
    with vision.ImageSegmenter.create_from_options(options) as segmenter:
        for photo in photos:
            result = segmenter.segment(photo)  # holds the memory of its masks
            rows.append(np.stack([each.numpy_view() for each in result.confidence_masks], axis=-1))
    return rows


def vulkan_environment() -> dict[str, str]:
    """Returns the variables of a process that computes with Vulkan, as LiteRT's GPU delegate does.

    None where the machine has drivers, the user chose one, or the system is not Linux and has
    its own way to a GPU. Otherwise those of the software Vulkan that Chromium brings along.

    Raises `RuntimeMissing` if there is neither.
    """
    own = any(any(pathlib.Path(folder).glob("*.json")) for folder in DRIVERS)
    if sys.platform != "linux" or own or any(os.environ.get(name) for name in CHOSEN):
        return {}
    for browser in map(pathlib.Path, BROWSERS):
        if (browser / SOFTWARE).is_file() and (browser / LOADER).is_file():
            return {
                "VK_ICD_FILENAMES": str(browser / SOFTWARE),
                "LD_PRELOAD": str(browser / LOADER),
            }
    raise RuntimeMissing(
        "Expected a Vulkan driver. There is none in /usr/share/vulkan/icd.d: install the GPU's, or "
        "Chromium, whose software Vulkan gives the same numbers (apt-get install chromium)."
    )


def _run_in_browser(path, artifact, images, backend, precisions):
    """Runs a .tflite file in LiteRT.js, in Chromium, by the code of the page of `to_web`.

    `backend` is "wasm", on one thread, or "webgpu"; `precisions` are those of the outputs, and of
    `Delegation.float16`. Raises `RuntimeMissing` without Playwright, Chromium, or a GPU in it.
    """
    settings = {"operations": [], "examples": [], "facts": {}, "activation": "softmax"}
    settings["image_size"] = list(artifact.image_size)
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        site = pathlib.Path(directory) / "site"
        write_page(path, site, litert_js(), settings=settings, title="", summary="")
        (site / _IMAGES).write_bytes(np.ascontiguousarray(images, "<f4").tobytes())
        with served(site) as address:
            page = browser.new_page()
            page.goto(address)
            # The page opens the model too: in WebAssembly, which is there everywhere.
            page.wait_for_selector(
                "html[data-ready], #error:not([hidden])", state="attached", timeout=_LOADING
            )
            if error := page.inner_text("#error"):
                raise ExportError(f"{path} cannot be run by LiteRT.js: {error}")
            with damage_refused(f"{path} cannot be run by LiteRT.js"):
                found = page.evaluate(_RUN, [backend, precisions, _IMAGES, len(images)])
        if "reason" in found:
            raise RuntimeMissing(f"Expected a GPU in Chromium. {found['reason']}")
        where = f"WebGPU on {found['adapter']}" if backend == "webgpu" else "WebAssembly"
        device = f"Chromium {browser.version}, {where}"
    shape = (len(precisions), len(images), *artifact.output_shape)
    outputs, *half = np.array(found["outputs"], "float32").reshape(shape)
    return outputs, Delegation(device, found["complete"], float16=half[0] if half else None)


_in_wasm = partial(_run_in_browser, backend="wasm", precisions=["fp32"])
_in_webgpu = partial(_run_in_browser, backend="webgpu", precisions=["fp32", "fp16"])
_OPEN: dict[str, Callable[[pathlib.Path, keras.Model], Artifact]] = {
    "hub": open_hub,
    "keras": _open_keras,
    "interpreter": _open_interpreter,
    "compiled": open_compiled,
    "gpu": open_gpu,
    "openvino": _open_openvino,
    "mediapipe": _open_mediapipe,
    "browser": _of_tflite(_in_wasm),
    "browser-gpu": _of_tflite(_in_webgpu),
    "onnx": _open_onnx,
    "transformers": partial(_open_folder, library="transformers"),
    "timm": partial(_open_folder, library="timm"),
}


def open_artifact(
    path: str | os.PathLike, model: keras.Model, runtime: str | None = None
) -> tuple[str, Artifact]:
    """Opens an exported file or directory in a runtime, and returns the runtime's name and it.

    `model` is the one that it came from; `runtime` None takes the default of the file's format.

    Raises `FileNotFoundError` if there is nothing; `ExportError` if it is damaged or of another
    kind, or the runtime opens other files; `RuntimeMissing` if the runtime is not on this machine.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"Expected an exported model. There is nothing at {path}.")
    is_module = (path / "saved_model.pb").is_file()
    format = SAVED_MODEL if is_module else _SUFFIXES.get(path.suffix if path.is_file() else "")
    if model_source(path).kind is Kind.LIBRARY_FOLDER:
        config = json_beside(path / CONFIG, CONFIG) or {}
        format = TIMM if "architecture" in config else TRANSFORMERS
    if format is None:
        formats = ", ".join(dict.fromkeys(RUNTIMES.values()))
        raise ExportError(f"Expected {formats}. Received: {path}")
    names = [name for name, opened in RUNTIMES.items() if opened == format]
    name = names[0] if runtime is None else runtime
    if name not in names:
        raise ExportError(
            f"Expected a runtime of {format}: {', '.join(names)}. Received: {runtime!r}"
        )
    return name, _OPEN[name](path, model)
