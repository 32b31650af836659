"""An ONNX file, for ONNX Runtime and its like.

keras-vit export onnx runs/quickstart --output=digits.onnx
keras-vit export onnx runs/quickstart --output=features.onnx --module_output=representation
"""

import argparse

from keras_vit.training.command_line.options import CommandParser

from ..command_line import options as shared


def add_options(parser: CommandParser) -> None:
    shared.add_model_and_output(parser, "file to write")
    text = "store and compute in float16, for GPUs"
    parser.add_argument("--float16", action="store_true", help=text)
    shared.add_labels(parser, module_output=True)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    from ..onnx.to_onnx import to_onnx

    output = {"labels": export.labels, "output": options.module_output}
    return export.write(to_onnx, float16=options.float16, **output)
