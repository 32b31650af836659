"""The commands of `keras-vit export`: each is a function, and its docstring is its help."""

import argparse
import pathlib
import shlex
import tempfile
from collections.abc import Callable
from inspect import getdoc
from typing import TYPE_CHECKING, Any

from keras_vit.training.command_options import CommandParser, at_least_1, list_of, whole
from keras_vit.training.exit_status import command_main
from keras_vit.training.io.paths import any_path, local_path
from keras_vit.training.io.quiet_start import import_tensorflow, quiet_start

from .errors import imported
from .tflite.quantization import QUANTIZATIONS
from .verification.runtime_names import RUNTIMES

# A command answers --help without TensorFlow: functions import what needs it.
if TYPE_CHECKING:
    from .source_and_images import Export

_SOURCE: dict[str, Any] = {
    "metavar": "SOURCE",
    "help": "run directory, .keras file, or with --model the file or published name of a "
    "checkpoint",
}
_FLAG, _INTS = {"action": "store_true"}, {"type": list_of(at_least_1), "default": ()}

# A command takes those that it names.
_OPTIONS: dict[str, dict[str, Any]] = {
    "activation": {"choices": ("softmax", "sigmoid"), "help": "of the probabilities"},
    "all": {**_FLAG, "help": "every quantization, and a table"},
    "batch_sizes": {"metavar": "N,N", **_INTS, "help": "further signatures, such as 4,8"},
    "calibration": {
        "metavar": "NAME",
        "help": "images for int8, as --dataset; default: the run's training images, else --dataset",
    },
    "examples": {
        "metavar": "N",
        "type": whole,
        "default": 0,
        "help": "images of --dataset, or of the run's, to try; they are published with the page",
    },
    "feature_vector": {**_FLAG, "help": "add a signature for the representation"},
    "float16": {**_FLAG, "help": "store and compute in float16, for GPUs"},
    "handle": {"metavar": "PUBLISHER/MODEL/VERSION", "required": True},
    "image_sizes": {
        "metavar": "PIXELS,PIXELS",
        **_INTS,
        "help": "further signatures for other square images, such as 288,384",
    },
    "labels": {
        "metavar": "FILE",
        "type": any_path,
        "help": "text with a class name a line; default: those of the run's data set",
    },
    "license": {"default": "apache-2.0"},
    "litert_js": {
        "metavar": "DIR",
        "type": local_path,
        "help": "where its archives lie, as `npm pack` names them; default: fetched from npm once",
    },
    "module_output": {
        "choices": ("logits", "representation"),
        "help": "what calling it returns; default: the logits, if there is a head",
    },
    "output": {
        "metavar": "FILE",
        "type": local_path,
        "help": "also draw the errors into this .png",
    },
    "probabilities": {**_FLAG, "help": "give probabilities in place of logits"},
    "quantization": {"choices": QUANTIZATIONS, "default": "dynamic"},
    "resolution": {
        "choices": ("fixed", "any"),
        "default": "fixed",
        "help": "any: position embeddings of every image size",
    },
    "runtime": {
        "choices": RUNTIMES,
        "help": "what runs it; default: the interpreter for .tflite files",
    },
    "single-file": {**_FLAG, "help": "one file, which opens without a server"},
    "title": {"default": "Image classifier", "help": "at the top of the page"},
}


def _command(
    *options: str, artifact: str = "", output: str = "", count: int = 200
) -> Callable[[Callable[["Export"], int]], Callable[..., int]]:
    """Returns a decorator: from what a command does, with TensorFlow imported, to its `main`.

    Args:
        options: of `_OPTIONS`, beside those of the model and the images.
        artifact: explains the artifact that comes first; "" where SOURCE does.
        output: explains --output; "" where it is not required.
        count: default of --count.
    """

    def add_options(parser: CommandParser) -> None:
        if artifact:
            parser.add_argument("artifact", metavar="ARTIFACT", type=any_path, help=artifact)
            parser.add_argument("--against", dest="source", required=True, **_SOURCE)
        else:
            parser.add_argument("source", **_SOURCE)
        if output:
            written: dict[str, Any] = {"metavar": "PATH", "required": True, "type": any_path}
            parser.add_argument("--output", **written, help=output)
        for name in options:
            parser.add_argument(f"--{name}", **_OPTIONS[name])
        parser.add_model()
        text = "size of a checkpoint's head, to keep it"
        parser.add_argument("--num_classes", metavar="N", type=at_least_1, help=text)
        text = "images to verify with: a data set's name, folder:PATH, a directory of images, or "
        text += ".npz; default: the run's"
        parser.add_argument("--dataset", "--data", metavar="NAME", help=text)
        parser.add_argument("--split", help="default: the run's, else test, or the only one")
        parser.add_data_dir()
        number: dict[str, Any] = {"metavar": "N", "type": at_least_1, "default": count}
        text = f"images to verify with; default {count}"
        parser.add_argument("--count", "--images", **number, help=text)
        text = "also write the report to this file"
        parser.add_argument("--json", metavar="FILE", type=any_path, help=text)

    def decorate(run: Callable[["Export"], int]) -> Callable[..., int]:
        def start(options: argparse.Namespace) -> int:
            import_tensorflow()
            from .source_and_images import Export

            return run(Export(options))

        name = f"keras-vit export {run.__name__}"
        return command_main(name, getdoc(run) or "", add_options, start)

    return decorate


@_command(
    *("resolution", "activation", "module_output", "labels"),
    output="directory to write, or .tar.gz",
)
def hub(export: "Export") -> int:
    """A TF2 SavedModel for TF-Hub, which can be called, fine-tuned and served.

    keras-vit export hub runs/quickstart --output=modules/digits
    """
    with quiet_start():
        imported("tensorflow_hub", "hub")
    from .hub import archives
    from .hub.to_hub import to_hub

    options, model = export.options, export.source.model
    arguments = {
        "labels": export.labels,
        "resolution": options.resolution,
        "output": options.module_output,
    }
    model.activation = options.activation or model.activation
    if options.output.name.endswith(archives.SUFFIXES):
        with tempfile.TemporaryDirectory() as directory:
            module = to_hub(model, f"{directory}/module", **arguments)
            archives.pack(module, options.output)
    else:
        to_hub(model, options.output, **arguments)
    return export.verify_written(options.output)


@_command(
    *("quantization", "all", "batch_sizes", "image_sizes", "feature_vector", "probabilities"),
    *("calibration", "labels"),
    output="file to write; with --all a directory",
)
def tflite(export: "Export") -> int:
    """A TFLite (LiteRT) file for phones, or one for each quantization; XNNPACK runs all of it.

    keras-vit export tflite runs/quickstart --output=digits.tflite --quantization=int8
    keras-vit export tflite runs/quickstart --output=tflite/ --all
    """
    from keras_vit.training.io.printed_table import Table

    from .tflite.to_tflite import to_tflite_files

    options = export.options
    files = {options.quantization: options.output}
    if options.all:
        files = {name: options.output / f"{name}.tflite" for name in QUANTIZATIONS}
        _ = export.samples  # before the work of an export that could not be compared
    to_tflite_files(
        export.source.model,
        files,
        calibration=export.calibration(files),
        labels=export.labels,
        batch_sizes=options.batch_sizes,
        image_sizes=options.image_sizes,
        feature_vector=options.feature_vector,
        probabilities=options.probabilities,
    )
    if not options.all:
        return export.verify_written(options.output)
    reports = [export.verify(file) for file in files.values()]
    values = [dict(report.rows()) for report in reports]
    rows = [
        (name, *(each[name] for each in values))
        for name in values[0]
        if name not in ("artifact", "runtime", "images")
    ]
    columns = ["", *(report.kind for report in reports)]
    Table(columns, rows, "TFLite files").show(wrapped=columns)
    export.write_json([report.to_dict() for report in reports])
    return 0 if all(report.ok for report in reports) else 1


@_command("float16", "module_output", "labels", output="file to write")
def onnx(export: "Export") -> int:
    """An ONNX file, for ONNX Runtime and its like.

    keras-vit export onnx runs/quickstart --output=digits.onnx
    keras-vit export onnx runs/quickstart --output=features.onnx --module_output=representation
    """
    from .onnx.to_onnx import to_onnx

    options = export.options
    file = to_onnx(
        export.source.model,
        options.output,
        labels=export.labels,
        output=options.module_output,
        float16=options.float16,
    )
    return export.verify_written(file)


@_command(
    *("single-file", "title", "quantization", "calibration", "examples", "litert_js", "labels"),
    output="directory to write; with --single-file an .html file",
)
def web(export: "Export") -> int:
    """A page that runs a model in the browser of whoever opens it.

    It works on phones and computers, without a network and without a server that computes: images
    stay on the device.

      keras-vit export web runs/quickstart --output=site/
      keras-vit export web runs/quickstart --output=digits.html --single-file
    """
    from .web.to_web import to_web

    options = export.options
    page = to_web(
        export.source.model,
        options.output,
        labels=export.labels,
        title=options.title,
        quantization=options.quantization,
        calibration=export.calibration([options.quantization]),
        examples=[*export.samples[0][: options.examples]] if options.examples else [],
        single_file=options.single_file,
        litert_folder=options.litert_js,
    )
    status = export.verify_written(page)
    place = shlex.quote(str(page))
    if options.single_file:
        print(f"Open it in a browser: python -m webbrowser {place}")
    else:
        print(f"See it: python -m http.server --directory {place} 8000, then http://localhost:8000")
    return status


@_command(output="file to write")
def npz(export: "Export") -> int:
    """A checkpoint in the official layout, the .npz file that the original code reads.

    keras-vit export npz runs/quickstart --output=digits.npz
    """
    from keras_vit.checkpoints import save_checkpoint

    file = export.options.output
    save_checkpoint(export.source.model, file)
    return export.verify_written(file)


@_command("runtime", artifact="directory, .tar.gz, .tflite, .onnx, .npz or a web page")
def verify(export: "Export") -> int:
    """Does an artifact give what its model gives?

    Runs it in its real consumer, on real images, and prints its errors against the model, its
    accuracy, size, latency and memory. The exit status is 1 if it misses a threshold.

      keras-vit export verify digits.tflite --against=runs/quickstart
      keras-vit export verify digits.tflite --against=runs/quickstart --runtime=gpu
    """
    return export.show(export.verify(export.options.artifact, export.options.runtime))


@_command("output", artifact="quantized .tflite file", count=8)
def inspect(export: "Export") -> int:
    """Which layers of a quantized file are bad?

    Runs a quantized TFLite file and the same model in float32 on a few images, compares what every
    operation gives, and prints the errors as a table and, with --output, draws them. A layer whose
    error is far above that of its inputs is where the file loses.

      keras-vit export inspect digits.tflite --against=runs/quickstart --output=layers.png
    """
    from keras_vit.training.evaluators.exported_files import interface_of
    from keras_vit.training.io.printed_table import Table
    from keras_vit.training.reporting.matplotlib_figures import write_png

    from .tflite.flatbuffer_and_metadata import TFLiteFile
    from .tflite.layer_errors import figure, layer_errors
    from .tflite.to_tflite import to_tflite
    from .verification.verify_and_thresholds import require_image_size

    options = export.options
    TFLiteFile(options.artifact)  # says what is wrong with a damaged one
    images, _ = export.samples
    interface = interface_of(options.artifact)
    require_image_size(options.artifact, interface.get("image_size"), export.source.model)
    inside = interface.get("activation_inside")
    with tempfile.TemporaryDirectory() as directory:
        reference = pathlib.Path(directory) / "float32.tflite"
        probabilities = inside is not None
        model = export.source.model
        to_tflite(model, reference, activation=inside, probabilities=probabilities)
        errors = layer_errors(reference, options.artifact, images)
    rows = [
        (each.layer, each.operation, each.type, f"{each.error:.4f}", f"{each.inputs_error:.4f}")
        for each in errors
    ]
    columns = ("layer", "operation", "type", "error", "of its inputs")
    Table(columns, rows, f"{options.artifact}: error of each layer, relative").show()
    if options.output:
        write_png(figure(errors), options.output)
        print(f"wrote {options.output}")
    export.write_json([each._asdict() for each in errors])
    return 0


@_command(
    *("handle", "license"),
    artifact="directory of a module, or .tflite file",
    output="directory for the module's .md and Kaggle's two .json files",
)
def card(export: "Export") -> int:
    """The texts that publish a module: TF-Hub's documentation page and Kaggle's metadata.

    It verifies the artifact first.

      keras-vit export card modules/digits --against=RUN --handle=me/digits/1 --output=out
    """
    from .model_card import require_handle, write_card

    options, source = export.options, export.source
    require_handle(options.handle)  # before the work of verifying
    report = export.verify(options.artifact)
    files = write_card(
        source.model,
        report,
        options.handle,
        options.output,
        license=options.license,
        config=source.run,
    )
    export.write_json(report.to_dict())
    print("\n".join(f"wrote {file}" for file in files))
    return 0
