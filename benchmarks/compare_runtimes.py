"""`keras_vit.inference_function`, against LiteRT, OpenVINO and ONNX Runtime.

Exports Vision Transformers of random weights, and runs each file in a process of its own, one at a
time, in interleaved rounds. Prints Markdown: ratios are medians over rounds, each against the
fastest rival.
"""

import argparse
import importlib
import itertools
import pathlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import interleaved
from benchmarks.harness.command_line import add_shared, machine, show
from benchmarks.harness.process import Process, peak_memory
from benchmarks.libraries import INSTALL, missing
from keras_vit.photos.prepare_photos import prepare_photo, read_photo
from keras_vit.training.command_line.options import CommandParser, list_of
from keras_vit.training.errors import UsageError

OURS = "keras_vit.inference_function"
IMAGE_SIZE = 224
PREPROCESSING = f"decode|resize([{IMAGE_SIZE},{IMAGE_SIZE}])|value_range(0,1)"


# Functions that open a file, and return one from images (n, height, width, 3) to logits.
def _ours(file, precision, batch_size, threads, runtime=None):
    import keras_vit

    bfloat16 = precision == "bfloat16"
    return keras_vit.load_inference_function(
        file, batch_size=batch_size, bfloat16=bfloat16, runtime=runtime, threads=threads
    )


def _model(file, precision, batch_size, threads):
    import keras
    import tensorflow as tf

    model = keras.saving.load_model(file)
    infer = tf.function(lambda images: model(images, training=False), autograph=False)
    return lambda images: infer(images).numpy()


def _openvino(file, precision, batch_size, threads):
    import openvino

    core = openvino.Core()
    model = core.read_model(file)
    model.reshape([batch_size, IMAGE_SIZE, IMAGE_SIZE, 3])
    hint = "bf16" if precision == "bfloat16" else "f32"
    options = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": threads}
    compiled = core.compile_model(model, "CPU", options)
    return lambda images: compiled(images)[0]


def _onnx_runtime(file, precision, batch_size, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options)
    return lambda images: session.run(None, {"image": images})[0]


class Way(NamedTuple):
    """A way to run a model: its file, its module, what opens the file, and the least of pixels."""

    file: str
    module: str
    open: Callable[..., Callable]
    least: int = -1


_MODULE = "keras_vit.export.tflite.cpu_inference_function"
_LITERT, _OPENVINO = (partial(_ours, runtime=name) for name in ("litert", "openvino"))
WAYS = {
    "float32": {
        OURS: Way("float32.tflite", _MODULE, _ours),
        "model(images)": Way("model.keras", _MODULE, _model),
        "LiteRT, our TFLite": Way("float32.tflite", _MODULE, _LITERT),
        "OpenVINO, our TFLite": Way("float32.tflite", _MODULE, _OPENVINO),
        "OpenVINO, our ONNX": Way("float32.onnx", "openvino", _openvino, 0),
        "ONNX Runtime, our ONNX": Way("float32.onnx", "onnxruntime", _onnx_runtime, 0),
    },
    "bfloat16": {
        OURS: Way("float32.tflite", _MODULE, _ours),
        "OpenVINO, our ONNX": Way("float32.onnx", "openvino", _openvino, 0),
    },
    "int8": {
        OURS: Way("int8.tflite", _MODULE, _ours),
        f"{OURS}, calibrated": Way("calibrated.tflite", _MODULE, _ours),
        "OpenVINO, NNCF": Way("int8.xml", "openvino", _openvino, 0),
        "ONNX Runtime, our ONNX": Way("int8.onnx", "onnxruntime", _onnx_runtime, 0),
    },
}


def add_options(parser: CommandParser) -> None:
    text = "folder of JPEGs, of which the first 32 calibrate the ranges, and are classified"
    parser.add_argument("--images", required=True, help=text)
    add_shared(parser, models=("ViT-Ti/16", "ViT-S/16", "ViT-B/16"), batch_size=(1, 8))
    several = list_of(str, WAYS)
    parser.add_argument("--precision", type=several, default=[*WAYS], help=f"of {', '.join(WAYS)}")
    add_shared(parser, rounds=7, seconds=1.0, threads=2)


def run(options: argparse.Namespace) -> None:
    threads = options.threads
    if absent := missing(("nncf", "onnxruntime", "openvino", "tf2onnx")):
        raise UsageError(f"Expected {', '.join(absent)} to be installed. {INSTALL}")
    print(machine(threads), "\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        photos = pathlib.Path(directory, "photos.npy")
        paths = sorted(pathlib.Path(options.images).rglob("*.[jJ][pP]*"))[:32]
        pixels = [prepare_photo(read_photo(path), PREPROCESSING) for path in paths]
        np.save(photos, np.stack(pixels))
        for model in options.models:
            folder = pathlib.Path(directory, model.replace("/", "_"))
            task = {"model": model, "folder": str(folder), "photos": str(photos)}
            with Process(f"{__name__}:write_files", task) as process:
                expected = process.facts["classes"]
            for each, size in itertools.product(options.precision, options.batch_size):
                task = {"folder": str(folder), "precision": each, "batch_size": size}
                task |= {"photos": str(photos), "threads": threads}
                tasks = {way: {"way": way, **task} for way in WAYS[each]}
                measured = interleaved.measure_processes(
                    f"{__name__}:prepare", tasks, options.rounds, threads, options.seconds
                )
                rows = _rows(measured, size, expected)
                show(rows, f"{model}, {each}, {size} image{'s' * (size > 1)} at once")


def write_files(model: str, folder: str, photos: str) -> tuple[dict[str, list[int]], None]:
    """Writes the files that `WAYS` names, and returns the `classes` of the Keras model."""
    import keras
    import nncf
    import openvino
    from onnxruntime.quantization import QuantType, quantize_dynamic

    import keras_vit
    from keras_vit import export

    keras.utils.set_random_seed(0)
    built = keras_vit.create_model(model, num_classes=1000, image_size=IMAGE_SIZE)
    head = built.get_layer("head").kernel
    head.assign(keras.random.normal(head.shape, 0, 0.02))
    pixels = np.load(photos)
    path = pathlib.Path(folder)
    path.mkdir()
    built.save(path / "model.keras")
    for name, kind in {"float32": "none", "int8": "dynamic", "calibrated": "int8"}.items():
        export.to_tflite(built, path / f"{name}.tflite", quantization=kind, calibration=pixels)
    source, target = export.to_onnx(built, path / "float32.onnx"), path / "int8.onnx"
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)
    graph = openvino.Core().read_model(source)
    data = nncf.Dataset([image[None] for image in pixels])
    small = nncf.quantize(graph, data, model_type=nncf.ModelType.TRANSFORMER)
    openvino.save_model(small, path / "int8.xml")
    return {"classes": built.predict(2 * pixels - 1, verbose=0).argmax(-1).tolist()}, None


def prepare(
    way: str, folder: str, precision: str, batch_size: int, photos: str, threads: int
) -> tuple[dict[str, Any], Callable[[float], dict[str, float]]]:
    """Opens a file in its runtime, in the process that will be asked."""
    chosen = WAYS[precision][way]
    pixels = np.load(photos) * (1 - chosen.least) + chosen.least
    batch = np.resize(pixels, (batch_size, *pixels.shape[1:]))
    importlib.import_module(chosen.module)
    start, before = time.process_time(), peak_memory()
    file = str(pathlib.Path(folder, chosen.file))
    run = chosen.open(file, precision, batch_size, threads)
    run(batch)
    facts: dict[str, Any] = {"first": time.process_time() - start, "taken": peak_memory() - before}
    starts = range(0, len(pixels) - batch_size + 1, batch_size)
    outputs = [run(pixels[start : start + batch_size]) for start in starts]
    facts["classes"] = np.concatenate(outputs).argmax(-1).tolist()
    return facts, partial(interleaved.median_time, partial(run, batch))


def _rows(measured, batch_size, expected):
    seconds = {way: [each["median"] for each in answers] for way, (_, answers) in measured.items()}
    fastest = min((each for way, each in seconds.items() if not way.startswith(OURS)), key=median)
    for way, (facts, _) in measured.items():
        ratio, quartiles = interleaved.ratio(seconds[way], fastest)
        pairs = list(zip(facts["classes"], expected, strict=False))
        yield {
            "runtime": way,
            "ms per image": f"{1000 * median(seconds[way]) / batch_size:.2f}",
            "× best rival": ratio,
            "quartiles": quartiles,
            "first answer, s of processor": f"{facts['first']:.2f}",
            "MiB": f"{facts['taken'] / 2**20:.0f}",
            "same class as float32": f"{sum(a == b for a, b in pairs)} of {len(pairs)}",
        }
