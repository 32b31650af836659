"""`keras-vit export verify ARTIFACT --against=SOURCE`: does it give what its model gives?

Runs an artifact in its real consumer, on real images, and prints its errors against the model, its
accuracy, size, latency and memory. The exit status is 1 if it misses a threshold.

  keras-vit export verify digits.tflite --against=runs/quickstart
  keras-vit export verify digits.tflite --against=runs/quickstart --runtime=gpu
"""

from keras_vit.export.command_line import Export, export_command
from keras_vit.export.verification.runtimes import RUNTIMES


def _options(parser):
    text = "what runs it; default: the interpreter for .tflite files"
    parser.add_argument("--runtime", choices=RUNTIMES, help=text)


@export_command(artifact="directory, .tar.gz, .tflite, .onnx, .npz or a web page", options=_options)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    return export.show(export.verify(export.options.artifact, export.options.runtime))
