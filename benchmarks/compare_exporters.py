"""`python -m benchmarks compare_exporters`: our exported files against those of other exporters."""

import argparse
import dataclasses
import functools
import importlib
import importlib.util
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.harness import interleaved, machine, options
from benchmarks.harness.case import Case
from benchmarks.harness.process import Process
from export.tflite.quantizer_package import QUANTIZER, quantizer_module
from training.command_options import list_of
from training.errors import UsageError
from training.io import atomic
from training.reporting.table import Table

OURS = "keras-vit"
PRECISIONS = ("float32", "int8")
IMAGE_SIZE = 224
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


EXPORTERS = {
    OURS: Exporter("keras_vit.to_tflite", (QUANTIZER,)),
    f"{OURS}, calibrated": Exporter("keras_vit.to_calibrated_tflite", (QUANTIZER,)),
    f"{OURS}, ONNX Runtime": Exporter(
        "keras_vit.to_onnx", ("onnx", "onnxruntime", "tf2onnx"), quantize=True
    ),
    "keras-hub": Exporter("keras_hub.to_tflite", ("keras_hub",)),
    "keras-hub, one image": Exporter(
        "keras_hub.to_one_image_tflite", ("keras_hub", QUANTIZER), quantize=True
    ),
    "timm, ONNX Runtime": Exporter(
        "timm.to_onnx", ("timm", "torch", "onnx", "onnxruntime"), quantize=True
    ),
    "timm, litert-torch": Exporter(
        "timm.to_litert", ("timm", "torch", "litert_torch", QUANTIZER), quantize=True
    ),
}


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    parser = options.parser(
        "compare_exporters",
        "Exports a Vision Transformer of random weights with this package and with others, and "
        "times a\nsingle image on every file, in one process and in interleaved rounds. Prints "
        "Markdown; ratios are\nmedians over rounds, each against this package's fastest file of "
        "the same precision in the same\nround. keras-vit's own files compute the class token "
        "alone in the last block.",
        rounds=25,
        threads=1,
    )
    parser.add_argument(
        "--models",
        type=list_of(str),
        default="ViT-Ti/16,ViT-B/16",
        help="names, separated by commas",
    )
    parser.add_argument(
        "--exporters",
        default="all",
        help=f"separated by semicolons, of: {'; '.join(EXPORTERS)}; all: those installed",
    )
    parser.add_argument(
        "--files",
        type=pathlib.Path,
        help="folder to keep the exported files in; those already there are used again",
    )
    parser.add_argument("--export_only", action="store_true", help="write --files, time nothing")
    return parser


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    from keras_vit.variants import arguments_of

    chosen = parser().parse_args(argv)
    exporters = _exporters(chosen.exporters, chosen.files)
    print(machine.describe(chosen.threads))
    with tempfile.TemporaryDirectory() as directory:
        for name in chosen.models:
            arguments = {**arguments_of(name)[1], "num_classes": 1000, "image_size": IMAGE_SIZE}
            folder = (chosen.files or pathlib.Path(directory)) / name.replace("/", "_")
            files = _export(arguments, exporters, folder)
            if not chosen.export_only:
                calls = {key: _timed(file, chosen.threads) for key, file in files.items()}
                seconds = interleaved.measure(calls, chosen.rounds)
                title = f"{name}, one image of {IMAGE_SIZE} pixels, {chosen.threads} thread(s)"
                print(f"\n{_table(files, seconds, title)}")
    return 0


def _missing(name):
    return [p for p in EXPORTERS[name].packages if importlib.util.find_spec(p) is None]


def _exporters(text, files):
    names = list(EXPORTERS) if text == "all" else [name.strip() for name in text.split(";")]
    unknown = [name for name in names if name not in EXPORTERS]
    if unknown:
        raise UsageError(
            f"Expected --exporters of: {'; '.join(EXPORTERS)}. Received: {'; '.join(unknown)}"
        )
    absent = {name: _missing(name) for name in names if _missing(name) and not files}
    if absent and text != "all":
        packages = sorted({package for each in absent.values() for package in each})
        raise UsageError(
            f"Expected {', '.join(packages)} to be installed. Install the other libraries with: "
            "pip install 'keras-vit-16x16[bench]', or choose other --exporters"
        )
    for name, packages in absent.items():
        print(f"left out: {name}, which needs {', '.join(packages)}", file=sys.stderr)
    return [name for name in names if name not in absent]


def _export(arguments, exporters, folder):
    """Returns {(exporter, precision): file}, exporting what is not there yet."""
    files = {}
    for name in exporters:
        target = folder / name.replace(", ", "_").replace(" ", "_")
        if not target.exists():
            if _missing(name):
                continue
            print(f"exporting {folder.name} with {name}", file=sys.stderr)
            case = dataclasses.asdict(Case(EXPORTERS[name].function, arguments, batch_size=1))
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
        (_quantize_onnx if file.suffix == ".onnx" else _quantize_tflite)(file)
    return {}, None


def _quantize_onnx(file):
    from onnxruntime import quantization

    int8 = quantization.QuantType.QInt8
    quantization.quantize_dynamic(file, file.with_stem("int8"), weight_type=int8)


def _quantize_tflite(file):
    recipe = quantizer_module("recipe").dynamic_wi8_afp32()
    tool = quantizer_module("quantizer").Quantizer(str(file), recipe)
    file.with_stem("int8").write_bytes(tool.quantize().quantized_model)


def _timed(file: pathlib.Path, threads: int) -> Callable[[], float]:
    """Returns a function that runs one image through a file and returns the seconds."""
    call = (_onnx_call if file.suffix == ".onnx" else _litert_call)(str(file), threads)

    def seconds():
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    for _ in range(WARM_UP):
        call()
    return seconds


def _noise(shape):
    import numpy as np

    return np.random.default_rng(0).uniform(0, 1, shape).astype("float32")


def _onnx_call(file, threads):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    (details,) = session.get_inputs()
    image = _noise([1, *details.shape[1:]])
    return functools.partial(session.run, None, {"image": image})


def _litert_call(file, threads):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(file, num_threads=threads)
    (details,) = interpreter.get_input_details()
    image = _noise(details["shape"])
    interpreter.allocate_tensors()

    def call():
        interpreter.set_tensor(details["index"], image)
        interpreter.invoke()

    return call


def _table(
    files: Mapping[tuple[str, str], pathlib.Path],
    seconds: Mapping[tuple[str, str], list[float]],
    title: str,
) -> str:
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    rows = []
    for precision in PRECISIONS:
        keys = [key for key in files if key[1] == precision]
        best = min((key for key in keys if key[0].startswith(OURS)), key=medians.__getitem__)
        for key in keys:
            ratio = interleaved.ratio(seconds[key], seconds[best])
            mebibytes = f"{files[key].stat().st_size / 2**20:.1f}"
            rows.append([*key, mebibytes, f"{1000 * medians[key]:.1f}", f"{ratio.median:.3f}"])
    return Table(["", "weights", "MiB", "ms", "to ours"], rows, title).markdown()
