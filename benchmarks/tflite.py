"""`python -m benchmarks tflite`: our exported files against those of other exporters."""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.harness import machine
from benchmarks.harness.progress import Bar
from benchmarks.harness.table import markdown
from benchmarks.tflite_exporters import EXPORTERS, missing_packages

OURS = "keras-vit"
PRECISIONS = ("float32", "int8")
WARM_UP = 3


def parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks tflite",
        description="Exports a Vision Transformer with this package and with others, and times a "
        "single image on every file, in one process and in interleaved rounds. Prints Markdown; "
        "ratios are medians over rounds, each against this package's fastest file of the same "
        "precision in the same round. keras-vit's own files compute the class token alone in the "
        "last block.",
    )
    parser.add_argument("--models", default="ViT-Ti/16,ViT-B/16", help="comma-separated")
    parser.add_argument(
        "--contestants",
        default="all",
        help=f"separated by semicolons, of: {'; '.join(EXPORTERS)}; all: those installed",
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--files",
        type=pathlib.Path,
        help="folder to keep the exported files in; those already there are used again",
    )
    parser.add_argument("--export-only", action="store_true", help="write --files, time nothing")
    return parser


def main(argv):
    """Runs the benchmark; returns the exit code."""
    options = parser().parse_args(argv)
    contestants = _contestants(options.contestants, options.files)
    print(machine.describe(options.threads))
    with tempfile.TemporaryDirectory() as directory:
        folder = options.files or pathlib.Path(directory)
        for name in options.models.split(","):
            files = _export(name, contestants, folder / name.replace("/", "_"))
            if not options.export_only:
                rounds = _measure(files, options.rounds, options.threads)
                print(f"\n### {name}, one image of 224 pixels, {options.threads} thread(s)\n")
                print(_table(files, rounds))
    return 0


def _contestants(text, files):
    names = list(EXPORTERS) if text == "all" else [name.strip() for name in text.split(";")]
    unknown = [name for name in names if name not in EXPORTERS]
    if unknown:
        raise SystemExit(
            f"Expected --contestants of: {'; '.join(EXPORTERS)}. Received: {'; '.join(unknown)}"
        )
    missing = {name: missing_packages(name) for name in names}
    absent = {name: packages for name, packages in missing.items() if packages and not files}
    if absent and text != "all":
        packages = sorted({package for each in absent.values() for package in each})
        raise SystemExit(
            f"Expected {', '.join(packages)} to be installed. Install the peers with: "
            "pip install 'keras-vit[bench]', or choose other --contestants"
        )
    for name, packages in absent.items():
        print(f"left out: {name}, which needs {', '.join(packages)}", file=sys.stderr)
    return [name for name in names if name not in absent]


def _export(model, contestants, folder):
    """Returns {(contestant, precision): file}, exporting what is not there yet."""
    files = {}
    for name in contestants:
        target = folder / name.replace(", ", "_").replace(" ", "_")
        if not target.exists():
            if missing_packages(name):
                continue
            _export_apart(name, model, target)
        for precision in PRECISIONS:
            found = sorted(target.glob(f"{precision}.*"))
            if found:
                files[name, precision] = found[0]
    return files


def _export_apart(name, model, target):
    from keras_vit import variants

    print(f"exporting {model} with {name}", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        written = pathlib.Path(directory) / "files"
        written.mkdir()
        architecture = json.dumps(variants.arguments_of(model)[1])
        command = [sys.executable, "-m", "benchmarks.tflite_exporters", name, architecture]
        command.append(str(written))
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{name} cannot export {model}:\n{result.stderr[-3000:]}")
        written.rename(target)


def _measure(files, rounds, threads):
    """Returns a list of {(contestant, precision): seconds}, one of each round."""
    calls = {key: _call(file, threads) for key, file in files.items()}
    results = []
    with Bar(rounds) as bar:
        for index in range(rounds):
            order = list(calls)
            random.Random(index).shuffle(order)
            results.append({key: _seconds(calls[key]) for key in order})
            bar.advance()
    return results


def _seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _call(file, threads):
    import numpy as np

    generator = np.random.default_rng(0)
    if file.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(str(file), options, providers=providers)
        image = generator.uniform(0, 1, session.get_inputs()[0].shape).astype("float32")

        def call():
            return session.run(None, {"image": image})

    else:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(file), num_threads=threads)
        (details,) = interpreter.get_input_details()
        image = generator.uniform(0, 1, details["shape"]).astype("float32")
        interpreter.allocate_tensors()

        def call():
            interpreter.set_tensor(details["index"], image)
            interpreter.invoke()

    for _ in range(WARM_UP):
        call()
    return call


def _table(files, rounds):
    rows = []
    for precision in PRECISIONS:
        keys = [key for key in files if key[1] == precision]
        ours = [key for key in keys if key[0].startswith(OURS)]
        best = min(ours, key=lambda key: statistics.median(r[key] for r in rounds))
        for key in keys:
            ratio = statistics.median(r[key] / r[best] for r in rounds)
            rows.append(
                [
                    key[0],
                    precision,
                    f"{files[key].stat().st_size / 2**20:.1f}",
                    f"{1000 * statistics.median(r[key] for r in rounds):.1f}",
                    f"{ratio:.3f}",
                ]
            )
    return markdown(["", "weights", "MiB", "ms", "to ours"], rows)
