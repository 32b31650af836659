"""`keras-vit export inspect FILE --against=SOURCE`: which layers of a quantized file are bad?

Runs a quantized TFLite file and the same model in float32 on a few images, compares what every
operation gives, and prints the errors as a table and, with --output, draws them. A layer whose
error is far above that of its inputs is where the file loses.

  keras-vit export inspect digits.tflite --against=runs/quickstart --output=layers.png
"""

import pathlib
import tempfile

from keras_vit.export.command_line import Export, export_command
from keras_vit.training.io.paths import local_path


def _options(parser):
    text = "also draw the errors into this .png"
    parser.add_argument("--output", metavar="FILE", type=local_path, help=text)


@export_command(artifact="quantized .tflite file", options=_options, count=8)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    from keras_vit.export.tflite.flatbuffer import TFLiteFile
    from keras_vit.export.tflite.layer_errors import layer_errors
    from keras_vit.export.tflite.to_tflite import to_tflite
    from keras_vit.training.io.printed_table import Table
    from keras_vit.training.reporting.figures import write_png

    options = export.options
    TFLiteFile(options.artifact)  # says what is wrong with a damaged one
    images, _ = export.samples
    with tempfile.TemporaryDirectory() as directory:
        reference = to_tflite(export.source.model, pathlib.Path(directory) / "float32.tflite")
        errors = layer_errors(reference, options.artifact, images)
    rows = [
        (each.layer, each.operation, each.type, f"{each.error:.4f}", f"{each.inputs_error:.4f}")
        for each in errors
    ]
    columns = ("layer", "operation", "type", "error", "of its inputs")
    Table(columns, rows, f"{options.artifact}: error of each layer, relative").show()
    if options.output:
        write_png(_figure(errors), options.output)
        print(f"wrote {options.output}")
    export.write_json([each._asdict() for each in errors])
    return 0


def _figure(errors):
    """Draws the error of each operation in order, one color a type, on a logarithmic scale."""
    from keras_vit.training.reporting.figures import new_figure

    figure, (axis,) = new_figure(width=9)
    axis.plot([each.error for each in errors], color="lightgray", zorder=1)
    for kind in dict.fromkeys(each.type for each in errors):
        points = [(place, each.error) for place, each in enumerate(errors) if each.type == kind]
        axis.scatter(*zip(*points, strict=True), s=9, label=kind, zorder=2)
    starts = {}
    for place, each in enumerate(errors):
        starts.setdefault(each.layer.split("/")[0], place)
    axis.set_xticks(list(starts.values()), list(starts), rotation=60, ha="right", fontsize=7)
    axis.set_yscale("log")
    axis.tick_params(axis="y", which="both", labelsize=7)
    axis.set_ylabel("relative error")
    axis.legend(fontsize=8)
    return figure
