"""A page that runs a model in the browser of whoever opens it.

It works on phones and computers, without a network and without a server that computes: images
stay on the device.

  keras-vit export web runs/quickstart --output=site/
  keras-vit export web runs/quickstart --output=digits.html --single-file
  keras-vit export web imagenet21k/ViT-B_16 --model=ViT-B/16 --output=site/ --teach
"""

import argparse
import shlex

from keras_vit.training.command_line.options import CommandParser, whole
from keras_vit.training.io.paths import local_path

from ..command_line import options as shared


def add_options(parser: CommandParser) -> None:
    shared.add_model_and_output(parser, "directory to write; with --single-file an .html file")
    text = "one file, which opens without a server"
    parser.add_argument("--single-file", action="store_true", help=text)
    text = "the page learns classes from its visitor's photos; of a model with or without a head"
    parser.add_argument("--teach", action="store_true", help=text)
    parser.add_argument("--title", help="at the top of the page; default: what the model does")
    shared.add_quantization(parser)
    text = "images of --dataset, or of the run's, to try; they are published with the page"
    parser.add_argument("--examples", metavar="N", type=whole, default=0, help=text)
    text = "where its archives lie, as `npm pack` names them; default: fetched from npm once"
    parser.add_argument("--litert_js", metavar="DIR", type=local_path, help=text)
    shared.add_labels(parser)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    from ..web.to_web import to_web

    status = export.write(
        to_web,
        labels=export.labels,
        title=options.title,
        quantization=options.quantization,
        calibration=export.calibration([options.quantization]),
        examples=[*export.samples[0][: options.examples]] if options.examples else [],
        single_file=options.single_file,
        teach=options.teach,
        litert_folder=options.litert_js,
    )
    place = shlex.quote(str(options.output))
    if options.single_file:
        print(f"Open it in a browser: python -m webbrowser {place}")
    else:
        print(f"See it: python -m http.server --directory {place} 8000 --bind 127.0.0.1")
    return status
