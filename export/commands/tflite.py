"""A TFLite (LiteRT) file for phones, or one for each quantization; XNNPACK runs all of it.

keras-vit export tflite runs/quickstart --output=digits.tflite --quantization=int8
keras-vit export tflite runs/quickstart --output=tflite/ --all
"""

import argparse

from keras_vit.training.command_line.options import CommandParser, at_least_1, list_of
from keras_vit.training.io.printed_table import Table

from ..command_line import options as shared
from ..tflite.quantization import QUANTIZATIONS


def add_options(parser: CommandParser) -> None:
    shared.add_model_and_output(parser, "file to write; with --all a directory")
    shared.add_quantization(parser)
    text = "every quantization, and a table"
    parser.add_argument("--all", action="store_true", help=text)
    for name, metavar, text in (
        ("--batch_sizes", "N,N", "further signatures, such as 4,8"),
        ("--image_sizes", "PIXELS,PIXELS", "signatures for other square images, such as 288,384"),
    ):
        sizes = list_of(at_least_1)
        parser.add_argument(name, metavar=metavar, type=sizes, default=(), help=text)
    text = "add a signature for the representation"
    parser.add_argument("--feature_vector", action="store_true", help=text)
    text = "give probabilities in place of logits"
    parser.add_argument("--probabilities", action="store_true", help=text)
    shared.add_labels(parser)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    from ..tflite.to_tflite import to_tflite

    kinds = QUANTIZATIONS if options.all else [options.quantization]
    added = ("batch_sizes", "image_sizes", "feature_vector", "probabilities")
    arguments = {
        "quantization": QUANTIZATIONS if options.all else options.quantization,
        "calibration": export.calibration(kinds),
        "labels": export.labels,
        **{name: getattr(options, name) for name in added},
    }
    if not options.all:
        return export.write(to_tflite, **arguments)
    _ = export.samples  # before the work of an export that could not be compared
    to_tflite(export.source.model, options.output, **arguments)
    reports = [export.verify(options.output / f"{kind}.tflite") for kind in kinds]
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
