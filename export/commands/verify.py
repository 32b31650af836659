"""`python -m export verify ARTIFACT --against=SOURCE`: does it give what its model gives?

Runs an artifact in its real consumer, on real images, and prints its errors against the model, its
accuracy, size, latency and memory. The exit status is 1 if it misses a threshold.

  python -m export verify digits.tflite --against=runs/quickstart
"""

from export.command_options import ExportParser
from training.exit_status import command_main
from training.io.quiet_tensorflow import import_tensorflow


def _parser():
    parser = ExportParser("python -m export verify", __doc__)
    parser.add_artifact("directory, .tar.gz, .tflite or .npz")
    parser.add_images()
    return parser


def _verify(options):
    import_tensorflow()
    from export.command_steps import images, load_source, show
    from export.verification.verify import verify

    source = load_source(options)
    return show(options, verify(source.model, options.artifact, *images(options, source)))


main = command_main(_parser, _verify)
