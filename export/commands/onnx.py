"""`python -m export onnx SOURCE`: an ONNX file, for ONNX Runtime and its like.

Writes a model as an ONNX file, and runs it in ONNX Runtime on the run's test images.

  python -m export onnx runs/quickstart --output=digits.onnx
"""

from export.command_options import ExportParser
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = ExportParser("python -m export onnx", __doc__)
    parser.add_model()
    parser.add_output("file to write")
    parser.add_labels()
    parser.add_images()
    return parser


def _export(options):
    import_tensorflow()
    from export.command_steps import class_names, load_source, verify_written
    from export.onnx.to_onnx import to_onnx

    source = load_source(options)
    file = to_onnx(
        source.model,
        options.output,
        labels=class_names(options, source),
        activation=source.activation,
    )
    return verify_written(options, source, file)


main = command_main(_parser, _export)
