"""Our exported files against those of other exporters."""

import dataclasses
import functools
import importlib
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.harness import interleaved
from benchmarks.harness.process import Process
from benchmarks.harness.report import machine, show
from benchmarks.libraries import INSTALL, Case, missing
from keras_vit.training.io import atomic

OURS = "keras-vit"
QUANTIZER = "litert_quantizer"
PRECISIONS = ("float32", "int8")
IMAGE_SIZE = 224
THREADS = 1
WARM_UP = 3


class Exporter(NamedTuple):
    """A way to a file, as its library's documentation describes it.

    Attributes:
        function: of a module of `benchmarks.libraries`, "MODULE.FUNCTION".
        packages: what has to be installed.
        quantize: whether LiteRT's or ONNX Runtime's quantizer makes the int8 file from the
            float32 one, its activations in int8 as they come.
    """

    function: str
    packages: Sequence[str]
    quantize: bool = False


_ONNX = ("onnx", "onnxruntime")
EXPORTERS = {
    OURS: Exporter("keras_vit.to_tflite", (QUANTIZER,)),
    f"{OURS}, calibrated": Exporter("keras_vit.to_calibrated_tflite", (QUANTIZER,)),
    f"{OURS}, ONNX Runtime": Exporter("keras_vit.to_onnx", (*_ONNX, "tf2onnx"), quantize=True),
    "keras-hub": Exporter("keras_hub.to_tflite", ("keras_hub",)),
    "keras-hub, one image": Exporter(
        "keras_hub.to_one_image_tflite", ("keras_hub", QUANTIZER), quantize=True
    ),
    "timm, ONNX Runtime": Exporter("timm.to_onnx", ("timm", "torch", *_ONNX), quantize=True),
    "timm, litert-torch": Exporter(
        "timm.to_litert", ("timm", "torch", "litert_torch", QUANTIZER), quantize=True
    ),
}


def compare_exporters(
    models: Sequence[str] = ("ViT-Ti/16", "ViT-B/16"),
    files: str = "",
    export_only: bool = False,
    rounds: int = 25,
) -> None:
    """Exported files for phones, against other exporters.

    Exports a Vision Transformer of random weights with this package and with others, and times a
    single image on every file, in one process and in interleaved rounds. Prints Markdown; ratios
    are medians over rounds, each against this package's fastest file of the same precision in the
    same round. keras-vit's own files compute the class token alone in the last block. Those whose
    packages are not installed are left out.

    Args:
        files: folder to keep the exported files in; those already there are used again.
        export_only: write --files, time nothing.
    """
    from keras_vit.variants import arguments_of

    print(machine(THREADS), "\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for model in models:
            arguments = {**arguments_of(model)[1], "num_classes": 1000, "image_size": IMAGE_SIZE}
            folder = pathlib.Path(files or directory, model.replace("/", "_"))
            exported = _export(arguments, folder)
            if not export_only:
                calls = {key: _timed(file) for key, file in exported.items()}
                seconds = interleaved.measure(calls, rounds)
                title = f"{model}, one image of {IMAGE_SIZE} pixels, {THREADS} thread(s)"
                show(_rows(exported, seconds), title)


def _export(arguments, folder):
    """Returns {(exporter, precision): file}, exporting what is not there yet."""
    files = {}
    for name, exporter in EXPORTERS.items():
        target = folder / name.replace(", ", "_").replace(" ", "_")
        if not target.exists():
            if absent := missing(exporter.packages):
                print(
                    f"left out: {name}, which needs {', '.join(absent)}. {INSTALL}",
                    file=sys.stderr,
                )
                continue
            print(f"exporting {folder.name} with {name}", file=sys.stderr)
            case = dataclasses.asdict(Case(exporter.function, arguments, batch_size=1))
            with atomic.atomic_directory(target, marker="float32.tflite") as directory:
                task = {"name": name, "case": case, "folder": str(directory)}
                Process(f"{__name__}:export_files", task).close()
        for precision in PRECISIONS:
            for file in target.glob(f"{precision}.*"):
                files[name, precision] = file
    return files


def export_files(name: str, case: dict[str, Any], folder: str) -> tuple[dict, None]:
    """Writes the files of one exporter, in a process of its own.

    PyTorch's processes must not import Keras on TensorFlow, as the two link different versions of
    LLVM.
    """
    exporter, target = EXPORTERS[name], pathlib.Path(folder)
    module, _, function = exporter.function.partition(".")
    library = importlib.import_module(f"benchmarks.libraries.{module}")
    getattr(library, function)(Case(**case), target)
    if exporter.quantize:
        (file,) = target.glob("float32.*")
        if file.suffix == ".onnx":
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(file, file.with_stem("int8"), weight_type=QuantType.QInt8)
        else:
            from litert_quantizer import quantizer, recipe

            tool = quantizer.Quantizer(str(file), recipe.dynamic_wi8_afp32())
            file.with_stem("int8").write_bytes(tool.quantize().quantized_model)
    return {}, None


def _timed(file):
    """Returns a function that runs one image through a file and returns the seconds."""
    call = (_onnx_call if file.suffix == ".onnx" else _litert_call)(str(file))
    for _ in range(WARM_UP):
        call()
    return functools.partial(interleaved.seconds, call)


def _onnx_call(file):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    (details,) = session.get_inputs()
    return functools.partial(session.run, None, {"image": _noise([1, *details.shape[1:]])})


def _litert_call(file):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(file, num_threads=THREADS)
    (details,) = interpreter.get_input_details()
    image = _noise(details["shape"])
    interpreter.allocate_tensors()

    def call():
        interpreter.set_tensor(details["index"], image)
        interpreter.invoke()

    return call


def _noise(shape):
    import numpy as np

    return np.random.default_rng(0).uniform(0, 1, shape).astype("float32")


def _rows(files, seconds):
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    for precision in PRECISIONS:
        keys = [key for key in files if key[1] == precision]
        best = min((key for key in keys if key[0].startswith(OURS)), key=medians.__getitem__)
        for key in keys:
            yield {
                "": key[0],
                "weights": precision,
                "MiB": f"{files[key].stat().st_size / 2**20:.1f}",
                "ms": f"{1000 * medians[key]:.1f}",
                "to ours": f"{interleaved.ratio(seconds[key], seconds[best]).median:.3f}",
            }
