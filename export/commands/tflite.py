"""`keras-vit export tflite SOURCE`: a TFLite file for phones, or one for each quantization.

Writes a model as a TFLite (LiteRT) file, all of whose operations XNNPACK runs.

  keras-vit export tflite runs/quickstart --output=digits.tflite --quantization=int8
  keras-vit export tflite runs/quickstart --output=tflite/ --all
"""

from keras_vit.export.command_line import Export, add_calibration, add_labels, export_command
from keras_vit.export.tflite.quantization import QUANTIZATIONS
from keras_vit.training.command_options import at_least_1, list_of


def _options(parser):
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="dynamic")
    parser.add_argument("--all", action="store_true", help="every quantization, and a table")
    ints = {"type": list_of(at_least_1), "default": ()}
    text = "further signatures, such as 4,8"
    parser.add_argument("--batch_sizes", metavar="N,N", **ints, help=text)
    text = "further signatures for other square images, such as 288,384"
    parser.add_argument("--image_sizes", metavar="PIXELS,PIXELS", **ints, help=text)
    text = "add a signature for the representation"
    parser.add_argument("--feature_vector", action="store_true", help=text)
    text = "give probabilities in place of logits"
    parser.add_argument("--probabilities", action="store_true", help=text)
    add_calibration(parser)
    add_labels(parser)


@export_command(output="file to write; with --all a directory", options=_options)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    from keras_vit.export.tflite.to_tflite import to_tflite_files
    from keras_vit.training.io.printed_table import Table

    options, source = export.options, export.source
    files = {options.quantization: options.output}
    if options.all:
        files = {name: options.output / f"{name}.tflite" for name in QUANTIZATIONS}
        _ = export.samples  # before the work of an export that could not be compared
    to_tflite_files(
        source.model,
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
