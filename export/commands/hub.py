"""A TF2 SavedModel for TF-Hub, which can be called, fine-tuned and served.

keras-vit export hub runs/quickstart --output=modules/digits
"""

import argparse
import tempfile

from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.io.quiet_start import quiet_start

from ..command_line import options as shared
from ..errors import imported
from ..hub import tar_gz


def add_options(parser: CommandParser) -> None:
    shared.add_model_and_output(parser, "directory to write, or .tar.gz")
    text = "any: position embeddings of every image size"
    parser.add_argument("--resolution", choices=("fixed", "any"), default="fixed", help=text)
    text = "of the probabilities"
    parser.add_argument("--activation", choices=("softmax", "sigmoid"), help=text)
    text = "add a signature for which patches speak for a class"
    parser.add_argument("--class_maps", action="store_true", help=text)
    shared.add_labels(parser, module_output=True)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    with quiet_start():
        imported("tensorflow_hub", "hub")
    model = export.source.model
    model.activation = options.activation or model.activation
    output = {"labels": export.labels, "output": options.module_output}
    added = {"resolution": options.resolution, "class_maps": options.class_maps}
    return export.write(_write, **added, **output)


def _write(model, path, **arguments):
    from ..hub.to_hub import to_hub

    if not path.name.endswith(tar_gz.SUFFIXES):
        return to_hub(model, path, **arguments)
    with tempfile.TemporaryDirectory() as directory:
        return tar_gz.pack(to_hub(model, f"{directory}/module", **arguments), path)
