"""`keras-vit export hub SOURCE`: a TF2 SavedModel for TF-Hub.

Writes a model as a TF2 reusable SavedModel, which can be called, fine-tuned and served.

  keras-vit export hub runs/quickstart --output=modules/digits
"""

import tempfile

from keras_vit.export.command_line import Export, add_labels, export_command
from keras_vit.export.errors import imported
from keras_vit.training.io.quiet_start import quiet_start


def _options(parser):
    text = "any: position embeddings of every image size"
    parser.add_argument("--resolution", choices=("fixed", "any"), default="fixed", help=text)
    outputs, activations = ("logits", "representation"), ("softmax", "sigmoid")
    text = "what calling the module returns; default: the logits, if there is a head"
    parser.add_argument("--module_output", choices=outputs, help=text)
    parser.add_argument("--activation", choices=activations, help="of the probabilities")
    add_labels(parser)


@export_command(output="directory to write, or .tar.gz", options=_options)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    with quiet_start():
        imported("tensorflow_hub", "hub")
    from keras_vit.export.hub import archives
    from keras_vit.export.hub.to_hub import to_hub

    options, source, labels = export.options, export.source, export.labels
    arguments = {
        "labels": None if options.module_output == "representation" else labels,
        "resolution": options.resolution,
        "output": options.module_output,
        "activation": options.activation or source.activation,
    }
    if options.output.name.endswith(archives.SUFFIXES):
        with tempfile.TemporaryDirectory() as directory:
            module = to_hub(source.model, f"{directory}/module", **arguments)
            archives.pack(module, options.output)
    else:
        to_hub(source.model, options.output, **arguments)
    return export.verify_written(options.output)
