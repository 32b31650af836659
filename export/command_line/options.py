"""The options that several exports take: spelled and explained here, once."""

import argparse
from typing import Any

from keras_vit.training.command_line.options import CommandParser, at_least_1
from keras_vit.training.io.paths import any_path
from keras_vit.training.io.quiet_start import import_tensorflow

from ..tflite.quantization import QUANTIZATIONS


def add_model_and_output(parser: CommandParser, output: str) -> None:
    """Adds SOURCE, its images, and --output, explained by `output`."""
    parser.add_source(exported=False)
    parser.add_path("--output", output, metavar="PATH", required=True)
    _add_images(parser, 200)


def add_artifact(parser: CommandParser, text: str, count: int = 200) -> None:
    """Adds ARTIFACT, explained by `text`, --against=SOURCE and `count` images."""
    parser.add_argument("artifact", metavar="ARTIFACT", type=any_path, help=text)
    parser.add_source("--against", exported=False, dest="source", required=True)
    _add_images(parser, count)


def add_labels(parser: CommandParser, module_output: bool = False) -> None:
    """Adds --labels, and with `module_output` --module_output."""
    if module_output:
        text = "what calling it returns; default: the logits, if there is a head"
        parser.add_argument("--module_output", choices=("logits", "representation"), help=text)
    text = "text with a class name a line; default: those of the run's data set"
    parser.add_argument("--labels", metavar="FILE", type=any_path, help=text)


def add_quantization(parser: CommandParser) -> None:
    """Adds --quantization and --calibration."""
    text = "of the weights, with int8 of what layers pass on too; default dynamic"
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="dynamic", help=text)
    text = "images for int8, as --dataset; default: the run's training images, else --dataset"
    parser.add_argument("--calibration", metavar="NAME", help=text)


def _add_images(parser, count):
    """Adds the head of a checkpoint's model, the images to verify with, and --json."""
    text = "size of a checkpoint's head, to keep it"
    parser.add_argument("--num_classes", metavar="N", type=at_least_1, help=text)
    text = "images to verify with: a data set's name, folder:PATH, a directory of images, or .npz; "
    text += "default: the run's"
    parser.add_argument("--dataset", "--data", metavar="NAME", store="keep", help=text)
    parser.add_argument("--split", help="default: the run's, else test, or the only one")
    parser.add_data_dir()
    number: dict[str, Any] = {"metavar": "N", "type": at_least_1, "default": count}
    parser.add_argument("--count", "--images", **number, help=f"how many; default {count}")
    text = "also write the report to this file"
    parser.add_path("--json", text, metavar="FILE")


def opened(options: argparse.Namespace) -> Any:
    """Returns the `Export` of a command's options, once TensorFlow is imported."""
    import_tensorflow()
    from .export import Export

    return Export(options)
