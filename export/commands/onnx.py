"""`keras-vit export onnx SOURCE`: an ONNX file, for ONNX Runtime and its like.

Writes a model as an ONNX file, and runs it in ONNX Runtime on the run's test images.

  keras-vit export onnx runs/quickstart --output=digits.onnx
"""

from keras_vit.export.command_line import Export, add_labels, export_command


@export_command(output="file to write", options=add_labels)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    from keras_vit.export.onnx.to_onnx import to_onnx

    file = to_onnx(
        export.source.model,
        export.options.output,
        labels=export.labels,
        activation=export.source.activation,
    )
    return export.verify_written(file)
