"""`python -m export inspect FILE --against=SOURCE`: which layers of a quantized file are bad?

Runs a quantized TFLite file and the same model in float32 on a few images, compares what every
operation gives, and prints the errors as a table and, with --output, draws them. A layer whose
error is far above that of its inputs is where the file loses.

  python -m export inspect digits.tflite --against=runs/quickstart --output=layers.png
"""

import pathlib
import tempfile

from export.command_options import ExportParser
from training.exit_status import command_main
from training.io.paths import local_path
from training.io.quiet_start import import_tensorflow

COUNT = 8


def _parser():
    parser = ExportParser("python -m export inspect", __doc__)
    parser.add_artifact("quantized .tflite file")
    parser.add_argument(
        "--output", metavar="FILE", type=local_path, help="also draw the errors into this .png"
    )
    parser.add_images()
    parser.set_defaults(count=COUNT)
    return parser


def _inspect(options):
    import_tensorflow()
    from export.command_steps import images, load_source, write_json
    from export.tflite.inspection import TFLiteFile
    from export.tflite.layer_errors import layer_errors
    from export.tflite.to_tflite import to_tflite
    from training.reporting.png_figure import write_png
    from training.reporting.table import Table

    source = load_source(options)
    TFLiteFile(options.artifact)  # says what is wrong with a damaged one
    samples, _ = images(options, source)
    with tempfile.TemporaryDirectory() as directory:
        reference = to_tflite(source.model, pathlib.Path(directory) / "float32.tflite")
        errors = layer_errors(reference, options.artifact, samples)
    rows = [
        (each.layer, each.operation, each.type, f"{each.error:.4f}", f"{each.inputs_error:.4f}")
        for each in errors
    ]
    columns = ("layer", "operation", "type", "error", "of its inputs")
    Table(columns, rows, f"{options.artifact}: error of each layer, relative").show()
    if options.output:
        write_png(_figure(errors), options.output)
        print(f"wrote {options.output}")
    write_json(options.json, [each._asdict() for each in errors])
    return 0


def _figure(errors):
    """Draws the error of each operation in order, one color a type, on a logarithmic scale."""
    from training.reporting.png_figure import new_figure

    figure, (axis,) = new_figure(width=9)
    axis.plot([each.error for each in errors], color="lightgray", zorder=1)
    for kind in dict.fromkeys(each.type for each in errors):
        points = [(place, each.error) for place, each in enumerate(errors) if each.type == kind]
        axis.scatter(*zip(*points, strict=True), s=9, label=kind, zorder=2)
    starts = {}
    for place, each in enumerate(errors):
        starts.setdefault(each.layer.split("/")[0], place)
    apart = len(errors) / 40  # of layers that begin closer together, the last is named
    places = list(starts.values())
    names = [
        (place, name)
        for (name, place), after in zip(starts.items(), [*places[1:], len(errors)], strict=True)
        if after - place > apart or after == len(errors)
    ]
    axis.set_xticks(*zip(*names, strict=True), rotation=60, ha="right", fontsize=7)
    axis.set_yscale("log")
    axis.tick_params(axis="y", which="both", labelsize=7)
    axis.set_ylabel("relative error")
    axis.legend(fontsize=8)
    return figure


main = command_main(_parser, _inspect)
