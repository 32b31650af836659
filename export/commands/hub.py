"""`keras-vit export hub SOURCE`: a TF2 SavedModel for TF-Hub.

Writes a model as a TF2 reusable SavedModel, which can be called, fine-tuned and served.

  keras-vit export hub runs/quickstart --output=modules/digits
"""

import tempfile

from keras_vit.export.command_line import LABELS, Export, export_command
from keras_vit.export.errors import imported
from keras_vit.training.io.quiet_start import quiet_start


@export_command(
    "hub",
    __doc__,
    output="directory to write, or .tar.gz",
    options={
        "--resolution": {
            "choices": ("fixed", "any"),
            "default": "fixed",
            "help": "any: position embeddings of every image size",
        },
        "--module_output": {
            "choices": ("logits", "representation"),
            "help": "what calling the module returns; default: the logits, if there is a head",
        },
        "--activation": {"choices": ("softmax", "sigmoid"), "help": "of the probabilities"},
        **LABELS,
    },
)
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
