"""The options that several commands take, spelled as those of `python -m training`.

SOURCE          the model: a run directory, a .keras file, or with --model=NAME a checkpoint;
                --against where an artifact comes first
--output        what is written
--calibration   images that ranges of activations are determined with
--labels        class names, where they are not those of the run
--dataset, --split, --data_dir, --count         the images that an artifact is verified on
--json          where its report is written, besides the terminal
"""

from typing import Any

from training.command_options import CommandParser
from training.io.paths import any_path

DEFAULT_COUNT = 200


class ExportParser(CommandParser):
    """The parser of `python -m export COMMAND`."""

    def add_model(self, name: str = "source", **settings: Any) -> None:
        """Adds what says which model it is.

        Args:
            name: of the argument, with the `settings` of `add_argument`.
        """
        self.add_argument(
            name,
            metavar="SOURCE",
            help="run directory, .keras file, or with --model the file or published name of a "
            "checkpoint",
            **settings,
        )
        self.add_argument("--model", metavar="NAME", help="of a checkpoint, such as ViT-B/16")
        self.add_argument(
            "--image_size", metavar="PIXELS", type=int, help="of a checkpoint's model; default 224"
        )
        self.add_argument(
            "--num_classes", metavar="N", type=int, help="size of a checkpoint's head, to keep it"
        )

    def add_artifact(self, text: str) -> None:
        """Adds the artifact, explained by `text`, and the model that it came from."""
        self.add_argument("artifact", metavar="ARTIFACT", type=any_path, help=text)
        self.add_model("--against", dest="source", required=True)

    def add_output(self, text: str) -> None:
        """Adds --output, explained by `text`."""
        self.add_argument("--output", metavar="PATH", required=True, type=any_path, help=text)

    def add_labels(self) -> None:
        """Adds --labels."""
        self.add_argument(
            "--labels",
            metavar="FILE",
            type=any_path,
            help="text with a class name a line; default: those of the run's data set",
        )

    def add_calibration(self) -> None:
        """Adds --calibration."""
        self.add_argument(
            "--calibration",
            metavar="NAME",
            help="images for int8, as --dataset; default: the run's training images, else "
            "--dataset",
        )

    def add_images(self) -> None:
        """Adds what says which images an artifact is verified on, and --json."""
        self.add_argument(
            "--dataset",
            "--data",
            metavar="NAME",
            help="images to verify with: a data set's name, folder:PATH, a directory of images, or "
            ".npz; default: the run's",
        )
        self.add_argument("--split", help="of the data set; default: the run's, else test")
        self.add_data_dir()
        self.add_argument(
            "--count",
            "--images",
            metavar="N",
            type=int,
            default=DEFAULT_COUNT,
            help=f"images to verify with; default {DEFAULT_COUNT}",
        )
        self.add_argument(
            "--json", metavar="FILE", type=any_path, help="also write the report to this file"
        )
