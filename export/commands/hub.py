"""`keras-vit export hub SOURCE`: a TF2 SavedModel for TF-Hub.

Writes a model as a TF2 reusable SavedModel, which can be called, fine-tuned and served.

  keras-vit export hub runs/quickstart --output=modules/digits
"""

import tempfile

from keras_vit.export.command_line import Export, add_labels, add_module_output, export_command
from keras_vit.export.errors import imported
from keras_vit.training.io.quiet_start import quiet_start


def _options(parser):
    text = "any: position embeddings of every image size"
    parser.add_argument("--resolution", choices=("fixed", "any"), default="fixed", help=text)
    activations = ("softmax", "sigmoid")
    parser.add_argument("--activation", choices=activations, help="of the probabilities")
    add_module_output(parser)
    add_labels(parser)


@export_command(output="directory to write, or .tar.gz", options=_options)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    with quiet_start():
        imported("tensorflow_hub", "hub")
    from keras_vit.export.hub import archives
    from keras_vit.export.hub.to_hub import to_hub

    options, source = export.options, export.source
    arguments = {
        "labels": export.labels,
        "resolution": options.resolution,
        "output": options.module_output,
    }
    source.model.activation = options.activation or source.model.activation
    if options.output.name.endswith(archives.SUFFIXES):
        with tempfile.TemporaryDirectory() as directory:
            module = to_hub(source.model, f"{directory}/module", **arguments)
            archives.pack(module, options.output)
    else:
        to_hub(source.model, options.output, **arguments)
    return export.verify_written(options.output)
