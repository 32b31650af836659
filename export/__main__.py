"""`python -m export`: TF-Hub modules, TFLite files and checkpoints, and their verification."""

import argparse
import pathlib
import sys

DESCRIPTION = """\
Hands a model over, and verifies what was handed over against the model.

  python -m export hub    runs/quickstart --output=modules/digits
  python -m export tflite runs/quickstart --output=digits.tflite --quantization=dynamic
  python -m export tflite runs/quickstart --output=tflite/ --all
  python -m export npz    runs/quickstart --output=digits.npz
  python -m export verify digits.tflite --against=runs/quickstart
  python -m export card   modules/digits --against=runs/quickstart --handle=me/digits/1 --output=out

SOURCE is a run directory of `python -m training`, a .keras file, or, with --model=ViT-B/16, the
path or published name of a checkpoint. Images in everything exported are RGB in [0, 1].
"""
SOURCE = "run directory, .keras file, or with --model a checkpoint"


def main(arguments=None):
    """Runs the command and returns the exit status: 1 if an artefact misses a threshold."""
    options = _parser().parse_args(arguments)
    from export import commands

    return commands.run(options)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m export",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    hub = commands.add_parser("hub", help="a TF2 SavedModel for TF-Hub", allow_abbrev=False)
    _add_source(hub)
    _add_output(hub, "directory to write, or .tar.gz")
    hub.add_argument("--resolution", choices=("fixed", "any"), default="fixed")
    hub.add_argument(
        "--module_output",
        choices=("logits", "representation"),
        help="what calling the module returns; default: the logits, if there is a head",
    )
    hub.add_argument("--activation", choices=("softmax", "sigmoid"), help="of the probabilities")
    _add_labels(hub)
    _add_data(hub)

    tflite = commands.add_parser("tflite", help="a file for phones", allow_abbrev=False)
    _add_source(tflite)
    _add_output(tflite, "file to write; with --all a directory")
    tflite.add_argument(
        "--quantization",
        choices=("none", "float16", "dynamic", "int8", "int8-full"),
        default="dynamic",
    )
    tflite.add_argument("--all", action="store_true", help="every quantisation, and a table")
    tflite.add_argument(
        "--batch_sizes", type=_ints, default=(), help="further signatures, such as 4,8"
    )
    tflite.add_argument(
        "--feature_vector", action="store_true", help="add a signature for the representation"
    )
    tflite.add_argument(
        "--calibration",
        metavar="DATA",
        help="images for int8, as --dataset; default: the run's training images, else --dataset",
    )
    _add_labels(tflite)
    _add_data(tflite)

    npz = commands.add_parser("npz", help="a checkpoint in the official layout", allow_abbrev=False)
    _add_source(npz)
    _add_output(npz, "file to write")
    _add_data(npz)

    verify = commands.add_parser("verify", help="compare with the model", allow_abbrev=False)
    verify.add_argument("artefact", type=pathlib.Path, help="directory, .tar.gz, .tflite or .npz")
    _add_source(verify, "--against")
    _add_data(verify)

    card = commands.add_parser("card", help="texts for publishing a module", allow_abbrev=False)
    card.add_argument("artefact", type=pathlib.Path, help="directory of a module, or .tflite file")
    _add_source(card, "--against")
    _add_output(card, "directory for the module's .md and Kaggle's two .json files")
    card.add_argument("--handle", required=True, metavar="PUBLISHER/MODEL/VERSION")
    card.add_argument("--license", default="apache-2.0")
    _add_data(card)
    return parser


def _add_source(parser, name="source"):
    if name.startswith("--"):
        parser.add_argument(name, dest="source", required=True, metavar="SOURCE", help=SOURCE)
    else:
        parser.add_argument(name, metavar="SOURCE", help=SOURCE)
    parser.add_argument("--model", metavar="NAME", help="architecture of a checkpoint")
    parser.add_argument("--image_size", type=int, default=224, help="for a checkpoint")
    parser.add_argument("--num_classes", type=int, help="size of a checkpoint's head, to keep it")


def _add_output(parser, text):
    parser.add_argument("--output", required=True, type=pathlib.Path, help=text)


def _add_labels(parser):
    parser.add_argument(
        "--labels",
        type=pathlib.Path,
        help="text file with a class name a line; default: those of the run's data set",
    )


def _add_data(parser):
    parser.add_argument(
        "--dataset",
        dest="data",
        help="images to verify with: a data set's name, folder:PATH, a directory of images, or "
        ".npz; default: the run's",
    )
    parser.add_argument("--split", help="of the data set; default: the run's, else test")
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--count", type=int, default=200, help="images to verify with; default 200")
    # The older spellings.
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--images", dest="count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=pathlib.Path, help="also write the report to this file")


def _ints(text):
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
