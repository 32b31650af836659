"""Does an artifact give what its model gives?

Runs it in its real consumer, on real images, and prints its errors against the model, its
accuracy, size, latency and memory. The exit status is 1 if it misses a threshold.

  keras-vit export verify digits.tflite --against=runs/quickstart
  keras-vit export verify digits.tflite --against=runs/quickstart --runtime=gpu
"""

import argparse

from keras_vit.training.command_line.options import CommandParser

from ..command_line import options as shared
from ..verification import RUNTIMES


def add_options(parser: CommandParser) -> None:
    shared.add_artifact(parser, "directory, .tar.gz, .tflite, .onnx, .npz or a web page")
    text = "what runs it; default: the interpreter for .tflite files"
    parser.add_argument("--runtime", choices=RUNTIMES, help=text)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)

    return export.show(export.verify(options.artifact, options.runtime))
