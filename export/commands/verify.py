"""`python -m export verify ARTIFACT --against=SOURCE`: does it give what its model gives?

Runs an artifact in its real consumer, on real images, and prints its errors against the model, its
accuracy, size, latency and memory. The exit status is 1 if it misses a threshold.

  python -m export verify digits.tflite --against=runs/quickstart
  python -m export verify digits.tflite --against=runs/quickstart --runtime=gpu
"""

from export.command_options import ExportParser
from export.verification.runtimes.runtime_table import RUNTIMES
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = ExportParser("python -m export verify", __doc__)
    parser.add_artifact("directory, .tar.gz, .tflite, .onnx, .npz or a web page")
    parser.add_argument(
        "--runtime",
        choices=RUNTIMES,
        help="what runs it; default: the interpreter for .tflite files",
    )
    parser.add_images()
    return parser


def _verify(options):
    import_tensorflow()
    from export.command_steps import images, load_source, show
    from export.verification.verify import verify

    source = load_source(options)
    samples = images(options, source)
    return show(options, verify(source.model, options.artifact, *samples, runtime=options.runtime))


main = command_main(_parser, _verify)
