"""`keras-vit export onnx SOURCE`: an ONNX file, for ONNX Runtime and its like.

Writes a model as an ONNX file, and runs it in ONNX Runtime on the run's test images.

  keras-vit export onnx runs/quickstart --output=digits.onnx
  keras-vit export onnx runs/quickstart --output=features.onnx --module_output=representation
"""

from keras_vit.export.command_line import Export, add_labels, add_module_output, export_command


def _options(parser):
    text = "store and compute in float16, for GPUs"
    parser.add_argument("--float16", action="store_true", help=text)
    add_module_output(parser)
    add_labels(parser)


@export_command(output="file to write", options=_options)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    from keras_vit.export.onnx.to_onnx import to_onnx

    file = to_onnx(
        export.source.model,
        export.options.output,
        labels=export.labels,
        output=export.options.module_output,
        float16=export.options.float16,
    )
    return export.verify_written(file)
