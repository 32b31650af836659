"""Which layers of a quantized file are bad?

Runs a quantized TFLite file and the same model in float32 on a few images, compares what every
operation gives, and prints the errors as a table and, with --output, draws them. A layer whose
error is far above that of its inputs is where the file loses.

  keras-vit export inspect digits.tflite --against=runs/quickstart --output=layers.png
"""

import argparse
import pathlib
import tempfile

from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.io.paths import local_path
from keras_vit.training.io.printed_table import Table

from ..command_line import options as shared


def add_options(parser: CommandParser) -> None:
    shared.add_artifact(parser, "quantized .tflite file", count=8)
    text = "also draw the errors into this .png"
    parser.add_argument("--output", metavar="FILE", type=local_path, help=text)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    from keras_vit.training.inference.interface import interface_of
    from keras_vit.training.reporting.matplotlib_figures import write_png

    from ..tflite.flatbuffer import TFLiteFile
    from ..tflite.layer_errors import figure, layer_errors
    from ..tflite.to_tflite import to_tflite
    from ..verification.verify import require_image_size

    TFLiteFile(options.artifact)  # says what is wrong with a damaged one
    images, _ = export.samples
    model, interface = export.source.model, interface_of(options.artifact)
    require_image_size(options.artifact, interface.get("image_size"), model)
    inside = interface.get("activation_inside")
    with tempfile.TemporaryDirectory() as directory:
        reference = pathlib.Path(directory) / "float32.tflite"
        to_tflite(model, reference, activation=inside, probabilities=inside is not None)
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
