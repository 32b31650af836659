"""`python -m export npz SOURCE`: a checkpoint in the official layout.

Writes a model's weights as the .npz file that the original code reads.

  python -m export npz runs/quickstart --output=digits.npz
"""

from export.command_options import ExportParser
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = ExportParser("python -m export npz", __doc__)
    parser.add_model()
    parser.add_output("file to write")
    parser.add_images()
    return parser


def _export(options):
    import_tensorflow()
    import keras_vit
    from export.command_steps import load_source, verify_written
    from export.portable_model import portable

    source = load_source(options)
    model = portable(source.model)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    keras_vit.save_checkpoint(model, options.output)
    return verify_written(options, source, options.output)


main = command_main(_parser, _export)
