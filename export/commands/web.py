"""`keras-vit export web SOURCE`: a page that runs a model in the browser of whoever opens it.

Writes a model as a page that works on phones and computers, without a network and without a
server that computes: images stay on the device.

  keras-vit export web runs/quickstart --output=site/
  keras-vit export web runs/quickstart --output=digits.html --single-file
"""

from keras_vit.export.command_line import Export, add_calibration, add_labels, export_command
from keras_vit.export.tflite.quantization import QUANTIZATIONS
from keras_vit.training.command_options import whole
from keras_vit.training.io.paths import local_path


def _options(parser):
    text = "one file, which opens without a server"
    parser.add_argument("--single-file", action="store_true", help=text)
    parser.add_argument("--title", default="Image classifier", help="at the top of the page")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="dynamic")
    add_calibration(parser)
    text = "images of --dataset, or of the run's, to try; they are published with the page"
    parser.add_argument("--examples", metavar="N", type=whole, default=0, help=text)
    text = "where its archives lie, as `npm pack` names them; default: fetched from npm once"
    parser.add_argument("--litert_js", metavar="DIR", type=local_path, help=text)
    add_labels(parser)


@export_command(output="directory to write; with --single-file an .html file", options=_options)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    from keras_vit.export.web.to_web import to_web

    options, source = export.options, export.source
    page = to_web(
        source.model,
        options.output,
        labels=export.labels,
        title=options.title,
        quantization=options.quantization,
        calibration=export.calibration([options.quantization]),
        examples=[*export.samples[0][: options.examples]] if options.examples else [],
        single_file=options.single_file,
        litert_folder=options.litert_js,
    )
    status = export.verify_written(page)
    if options.single_file:
        print(f"Open it in a browser: python -m webbrowser {page}")
    else:
        print(f"See it: python -m http.server --directory {page} 8000, then http://localhost:8000")
    return status
