"""A TF2 SavedModel for TF-Hub, which can be called, fine-tuned and served.

keras-vit export hub runs/quickstart --output=modules/digits
"""

import argparse
import tempfile

from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.io.quiet_start import quiet_start

from ..command_line import options as shared
from ..errors import imported
from ..hub import archives


def add_options(parser: CommandParser) -> None:
    shared.add_model_and_output(parser, "directory to write, or .tar.gz")
    text = "any: position embeddings of every image size"
    parser.add_argument("--resolution", choices=("fixed", "any"), default="fixed", help=text)
    text = "of the probabilities"
    parser.add_argument("--activation", choices=("softmax", "sigmoid"), help=text)
    shared.add_module_output(parser)
    shared.add_labels(parser)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    with quiet_start():
        imported("tensorflow_hub", "hub")
    from ..hub.to_hub import to_hub

    model = export.source.model
    arguments = {
        "labels": export.labels,
        "resolution": options.resolution,
        "output": options.module_output,
    }
    model.activation = options.activation or model.activation
    if options.output.name.endswith(archives.SUFFIXES):
        with tempfile.TemporaryDirectory() as directory:
            archives.pack(to_hub(model, f"{directory}/module", **arguments), options.output)
    else:
        to_hub(model, options.output, **arguments)
    return export.verify_written(options.output)
