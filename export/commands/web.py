"""`python -m export web SOURCE`: a page that runs a model in the browser of whoever opens it.

Writes a model as a page that works on phones and computers, without a network and without a
server that computes: images stay on the device.

  python -m export web runs/quickstart --output=site/
  python -m export web runs/quickstart --output=digits.html --single-file
"""

from export.command_options import ExportParser
from export.tflite.quantization import CALIBRATED, QUANTIZATIONS
from training.exit_status import command_main
from training.io.paths import local_path
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = ExportParser("python -m export web", __doc__)
    parser.add_model()
    parser.add_output("directory to write; with --single-file an .html file")
    parser.add_argument(
        "--single-file", action="store_true", help="one file, which opens without a server"
    )
    parser.add_argument("--title", default="Image classifier", help="at the top of the page")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="dynamic")
    parser.add_calibration()
    parser.add_argument(
        "--examples",
        metavar="N",
        type=int,
        default=0,
        help="images of --dataset, or of the run's, to try; they are published with the page",
    )
    parser.add_argument(
        "--litert_js",
        metavar="DIR",
        type=local_path,
        help="where its archives lie, as `npm pack` names them; default: fetched from npm once",
    )
    parser.add_labels()
    parser.add_images()
    return parser


def _export(options):
    import_tensorflow()
    from export.command_steps import calibration, class_names, images, load_source, verify_written
    from export.web.to_web import to_web

    source = load_source(options)
    calibrated = options.quantization in CALIBRATED
    samples = images(options, source) if options.examples else None
    page = to_web(
        source.model,
        options.output,
        labels=class_names(options, source),
        title=options.title,
        quantization=options.quantization,
        calibration=calibration(options, source) if calibrated else None,
        examples=samples[0][: options.examples] if samples else (),
        activation=source.activation,
        single_file=options.single_file,
        litert_folder=options.litert_js,
    )
    status = verify_written(options, source, page, samples)
    if options.single_file:
        print(f"Open it in a browser: python -m webbrowser {page}")
    else:
        print(f"See it: python -m http.server --directory {page} 8000, then http://localhost:8000")
    return status


main = command_main(_parser, _export)
