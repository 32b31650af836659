"""The options that several commands take: spelled and explained here, once.

SOURCE          the model: a run directory, a .keras file, the directory of a TF-Hub module, a
                .tflite file, the published name of a classifier of ImageNet, or with --model=NAME
                the file or published name of a checkpoint
--image_size    in pixels, of a checkpoint's model
--config        FILE[:ARGUMENT] of what is trained; --config.KEY=VALUE changes one value of it
--workdir       where runs are written, and gone on with when they were interrupted
--output        where anything else is written
--dataset, --split, --data_dir, --preprocess, --batch_size      what is read, and how
"""

import argparse
import logging
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ml_collections import ConfigDict

from training.errors import UsageError, did_you_mean
from training.io.paths import any_path

if TYPE_CHECKING:
    from training.data import Dataset

logger = logging.getLogger("training")

_OVERRIDE = re.compile(r"--?config\.")


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, whose options are written out in full.

    Args:
        prog: "python -m training COMMAND".
        description: of the command, with an example.
    """

    def __init__(self, prog: str, description: str = "", **settings: Any):
        super().__init__(
            prog=as_called(prog),
            description=as_called(description),
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **settings,
        )
        self._takes_overrides = self._takes_source = False

    def add_source(
        self, image_size: str = "of a checkpoint's model; default 224", optional: bool = True
    ) -> None:
        """Adds SOURCE, --model and --image_size, which name the model.

        Args:
            image_size: help of --image_size.
            optional: whether SOURCE may be left out, and be given in the older spellings.
        """
        self._takes_source = optional
        self.add_argument(
            "source",
            metavar="SOURCE",
            nargs="?" if optional else None,
            help="run directory, .keras file, directory of a TF-Hub module, .tflite file, "
            "published name, or with --model the file or published name of a checkpoint",
        )
        self.add_argument("--model", metavar="NAME", help="of a checkpoint, such as ViT-B/16")
        self.add_argument("--image_size", metavar="PIXELS", type=int, help=image_size)
        if optional:
            self.add_argument("--checkpoint", help=argparse.SUPPRESS)

    def add_dataset(self, several: bool = True, required: bool | None = None) -> None:
        """Adds the options of which images are read: data sets, or one that is optional.

        Args:
            several: whether there may be several.
            required: whether there must be one; None is `several`.
        """
        self.add_argument(
            "--dataset",
            metavar="NAME",
            required=several if required is None else required,
            type=list_of(str) if several else str,
            help="data sets, separated by commas" if several else "data set to take images from",
        )
        self.add_data_dir()
        self.add_argument(
            "--preprocess", metavar="OPERATIONS", help="on the images, separated by |"
        )
        if several:
            self.add_argument("--batch_size", metavar="IMAGES", type=int, default=128)

    def add_data_dir(self) -> None:
        """Adds --data_dir."""
        self.add_argument("--data_dir", metavar="DIR", help="folder of prepared data sets")

    def add_run(self, config: bool = True) -> None:
        """Adds the options of training.

        Args:
            config: whether --config names the config; some commands make their own.
        """
        self._takes_overrides = True
        if config:
            text = "Python file with get_config(ARGUMENT), or the name of one, such as quickstart"
            self.add_argument("--config", required=True, metavar="FILE[:ARGUMENT]", help=text)
            text = "show every key of a config and exit"
            self.add_argument("--helpfull", action=_ShowKeys, nargs=0, help=text)
        self.add_argument(
            "--workdir",
            metavar="DIR",
            type=any_path,
            required=True,
            help="where runs are written",
        )
        self.add_data_dir()
        self.epilog = "--config.KEY=VALUE sets any key of the config."

    def add_path(self, name: str, text: str, required: bool = False) -> None:
        """Adds an option that names a directory to write, explained by `text`."""
        self.add_argument(name, metavar="DIR", type=any_path, required=required, help=text)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Returns the options; `overrides` are the `--config.KEY=VALUE` among them.

        Raises:
            UsageError: saying what is wrong.
        """
        args = sys.argv[1:] if args is None else args
        overrides = [text for text in args if self._takes_overrides and _OVERRIDE.match(text)]
        options = super().parse_args([text for text in args if text not in overrides], namespace)
        if self._takes_overrides:
            options.overrides = overrides
        if self._takes_source:
            if options.source and options.checkpoint:
                self.error(
                    f"Expected one SOURCE. Received: {options.source} and {options.checkpoint}"
                )
            if options.checkpoint:
                options.source, options.checkpoint = options.checkpoint, None
            elif options.source is None:
                options.source, options.model = options.model, None
            if not options.source:
                self.error("the following arguments are required: SOURCE")
        return options

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            hint = did_you_mean(str(value), map(str, action.choices))
            raise argparse.ArgumentError(
                action,
                f"expected one of {', '.join(map(str, action.choices))}. Received: {value}"
                + (f".{hint}" if hint else ""),
            )

    def error(self, message: str) -> NoReturn:
        """Raises a `UsageError`."""
        end = "" if message.endswith("?") else "."
        raise UsageError(f"{message}{end} See {self.prog} --help")


def as_called(text: str) -> str:
    """Returns a text for people with the commands in it as this process was called.

    Args:
        text: with commands such as `python -m training`, which the script `keras-vit` runs too.
    """
    if pathlib.Path(sys.argv[0]).stem != "keras-vit":
        return text
    return text.replace("python -m training", "keras-vit").replace("python -m ", "keras-vit ")


class _ShowKeys(argparse.Action):
    def __call__(self, parser, *_):
        from training import config_keys

        config_keys.table().show()
        parser.exit()


def list_of(make: Callable[[str], Any]) -> Callable[[str], list]:
    """Returns the type of an option that takes values separated by commas."""

    def convert(text: str) -> list:
        return [make(part) for part in text.split(",")]

    convert.__name__ = f"list of {make.__name__}"
    return convert


def own_data(source: str, data_dir: str | None = None) -> "tuple[Dataset, dict[str, Any]]":
    """Opens the data set that a run was trained on.

    Args:
        source: a run directory.
        data_dir: where its data is now; None is where the run found it.

    Returns:
        The data set, and the run's config, which names its splits.

    Raises:
        UsageError: if `source` is no run directory.
        NotPreparedError: if its data is gone.
    """
    from training.data import fingerprint, open_dataset
    from training.evaluators.model_source import read_run_config

    file = any_path(source) / "config.json"
    if not file.is_file():
        raise UsageError(
            f"Expected --dataset=NAME, the data to read, as {source} is no run directory, which "
            "knows its own."
        )
    config = read_run_config(file)
    dataset = open_dataset(config["dataset"], data_dir or config["data_dir"])
    evaluation = dataset.split(config["eval_split"]) if config["eval_split"] else None
    now = fingerprint.describe(dataset.split(config["train_split"]), evaluation)
    changed, _ = fingerprint.changes(config["data"], now)
    if changed:
        logger.warning("The data of %s has changed: %s.", source, "; ".join(changed[:5]))
    return dataset, config


def complete_config(config: ConfigDict, options: argparse.Namespace) -> ConfigDict:
    """Returns a complete config with what the options of `add_run` change.

    Raises:
        UsageError: for an unknown key or a wrong value.
    """
    from training import config_command_line, config_keys

    data_dir = [f"--config.data_dir={options.data_dir}"] if options.data_dir else []
    return config_keys.complete(
        config_command_line.override(config, [*data_dir, *options.overrides])
    )
