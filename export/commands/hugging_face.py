"""A folder that transformers or timm open, with its card, for the Hugging Face Hub.

--push uploads it, once verified, to a repository that is private if it is new.

  keras-vit export hugging_face runs/quickstart --output=digits
  keras-vit export hugging_face runs/birds --output=birds --library=timm --push=USER/birds
"""

import argparse

from keras_vit.training.command_line.options import CommandParser

from ..command_line import options as shared


def add_options(parser: CommandParser) -> None:
    shared.add_model_and_output(parser, "directory to write")
    libraries, text = ("transformers", "timm"), "that opens it; default transformers"
    parser.add_argument("--library", choices=libraries, default=libraries[0], help=text)
    parser.add_argument("--license", metavar="NAME", help="of the weights, such as apache-2.0")
    parser.add_argument("--push", metavar="USER/NAME", help="a repository to upload it to")
    shared.add_labels(parser)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    from ..hugging_face import push, to_hugging_face

    facts = {"library": options.library, "license": options.license}
    status = export.write(to_hugging_face, labels=export.labels, **facts)
    if options.push and not status:
        print(f"pushed to {push(options.output, options.push)}")
    return status
