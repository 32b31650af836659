"""`python -m export hub SOURCE`: a TF2 SavedModel for TF-Hub.

Writes a model as a TF2 reusable SavedModel, which can be called, fine-tuned and served.

  python -m export hub runs/quickstart --output=modules/digits
"""

import tempfile

from export.command_options import ExportParser
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = ExportParser("python -m export hub", __doc__)
    parser.add_model()
    parser.add_output("directory to write, or .tar.gz")
    parser.add_argument(
        "--resolution",
        choices=("fixed", "any"),
        default="fixed",
        help="any: position embeddings are interpolated in the graph",
    )
    parser.add_argument(
        "--module_output",
        choices=("logits", "representation"),
        help="what calling the module returns; default: the logits, if there is a head",
    )
    parser.add_argument("--activation", choices=("softmax", "sigmoid"), help="of the probabilities")
    parser.add_labels()
    parser.add_images()
    return parser


def _export(options):
    import_tensorflow()
    from export.command_steps import class_names, load_source, verify_written
    from export.hub import tar_archive
    from export.hub.to_hub import to_hub

    source = load_source(options)
    labels = class_names(options, source)
    arguments = {
        "labels": None if options.module_output == "representation" else labels,
        "resolution": options.resolution,
        "output": options.module_output,
        "activation": options.activation or source.activation,
    }
    if options.output.name.endswith(tar_archive.SUFFIXES):
        with tempfile.TemporaryDirectory() as directory:
            module = to_hub(source.model, f"{directory}/module", **arguments)
            tar_archive.pack(module, options.output)
    else:
        to_hub(source.model, options.output, **arguments)
    return verify_written(options, source, options.output)


main = command_main(_parser, _export)
