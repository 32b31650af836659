"""A checkpoint in the official layout, the .npz file that the original code reads.

keras-vit export npz runs/quickstart --output=digits.npz
"""

import argparse

from keras_vit.training.command_line.options import CommandParser

from ..command_line import options as shared


def add_options(parser: CommandParser) -> None:
    shared.add_model_and_output(parser, "file to write")


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    from keras_vit.checkpoints import save_checkpoint

    return export.write(save_checkpoint)
