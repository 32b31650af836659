"""The options that several commands take: spelled and explained here, once."""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from keras_vit.name_suggestions import did_you_mean

from ..errors import UsageError
from ..io.paths import any_path
from ..io.printed_table import Table
from ..io.remote_stores import Store

_OVERRIDE = re.compile(r"--?config\.")


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, "keras-vit COMMAND", whose options are written out in full.

    `stores` are {option: what the command does with its path, where that is in a store}; it reads
    those that are not named.
    """

    def __init__(
        self, prog: str, description: str | None = "", stores: dict[str, Store] | None = None
    ):
        self.stores = {} if stores is None else stores
        super().__init__(prog, None, description, allow_abbrev=False, formatter_class=_Help)
        self.takes_overrides = False
        text = "show the full traceback of an error; VIT_DEBUG=1 in the environment does too"
        self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=text)

    def add_argument(self, *names: str, store: Store = "", **settings: Any) -> argparse.Action:  # type: ignore[override]
        """Adds an option; `store` is its entry in `stores`."""
        action = super().add_argument(*names, **settings)
        if store:
            self.stores[action.dest] = store
        return action

    def add_source(self, name: str = "source", exported: bool = True, **settings: Any) -> None:
        """Adds SOURCE, which `exported` models are too, and --model and --image_size."""
        text = "run directory, .keras file, folder of Hugging Face or timm, hf://USER/NAME, "
        text += "directory of a TF-Hub module, .tflite or .onnx file, " if exported else ""
        text += "published name, or with --model the file or published name of a checkpoint"
        self.add_argument(name, metavar="SOURCE", help=text, **settings)
        self.add_argument("--model", metavar="NAME", help="of a checkpoint, such as ViT-B/16")
        text = "of a checkpoint's model; default 224, of vtab 384"
        self.add_argument("--image_size", metavar="PIXELS", type=at_least_1, help=text)

    def add_dataset(self, several: bool = True) -> None:
        """Adds the options of which images are read: of `several` data sets, or of one."""
        text = "data sets, separated by commas" if several else "data set to take images from"
        kind = list_of(str) if several else str
        self.add_argument("--dataset", metavar="NAME", type=kind, store="keep", help=text)
        self.add_data_dir()
        text = "on the images, separated by |"
        self.add_argument("--preprocess", metavar="OPERATIONS", help=text)
        if several:
            images: dict[str, Any] = {"metavar": "IMAGES", "type": at_least_1, "default": 128}
            self.add_argument("--batch_size", **images, help="computed at once; default 128")

    def add_data_dir(self) -> None:
        """Adds --data_dir."""
        text = "folder of prepared data sets"
        self.add_argument("--data_dir", metavar="DIR", store="keep", help=text)

    def add_run(self, config: bool = True, required: bool = True) -> None:
        """Adds the options of training; without `config` for a command that makes its own."""
        self.takes_overrides = True
        if config:
            text = "Python file with get_config(ARGUMENT), or the name of one, such as quickstart"
            form = "FILE[:ARGUMENT]"
            self.add_argument("--config", required=required, metavar=form, store="keep", help=text)
        text = "show every key of a config and exit"
        self.add_argument("--helpfull", action=_ShowKeys, nargs=0, help=text)
        text = "log every column of metrics.csv, each time that it grows"
        self.add_argument("--verbose", action="store_true", help=text)
        self.add_path("--workdir", "where runs are written", "keep", required=True)
        self.add_data_dir()
        self.epilog = "--config.KEY=VALUE sets any key of the config."

    def add_path(self, name: str, text: str, store: Store = "write", **settings: Any) -> None:
        """Adds an option that names a directory to write, explained by `text`."""
        settings = {"metavar": "DIR", "type": any_path, **settings}
        self.add_argument(name, store=store, help=text, **settings)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Returns the options; `overrides` are the `--config.KEY=VALUE` among them."""
        args = sys.argv[1:] if args is None else args
        overrides = [text for text in args if self.takes_overrides and _OVERRIDE.match(text)]
        options = super().parse_args([text for text in args if text not in overrides], namespace)
        if self.takes_overrides:
            options.overrides = overrides
        return options

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Does what `argparse` does, once each option is one of this parser or like none."""
        known = self._option_string_actions
        # A misspelt option may be a required one. A subcommand's parser checks its options.
        for name in [] if self._subparsers else (text.partition("=")[0] for text in args or ()):
            hint = did_you_mean(name, known) if name.startswith("--") else ""
            if hint and name not in known:
                self.error(f"{hint}Received: {name}")
            if self.takes_overrides and name not in known:
                from ..config import schema  # not for the help of others

                if name.lstrip("-") in schema.DEFAULTS:
                    self.error(f"Did you mean --config.{name.lstrip('-')}? Received: {name}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            hint = did_you_mean(str(value), known)
            expected = f"{hint}Expected one of {', '.join(known)}. Received: {value}."
            raise argparse.ArgumentError(action, expected)

    def error(self, message: str) -> NoReturn:
        """Raises a `UsageError`."""
        end = "" if message.endswith(("?", ".")) else "."
        raise UsageError(f"{message}{end} See {self.prog} --help")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps help, but for commands, at the width of the terminal, at most 100."""

    def __init__(self, prog: str):
        super().__init__(prog, width=min(100, shutil.get_terminal_size((102, 24)).columns - 2))

    def _fill_text(self, text, width, indent):
        return "\n\n".join(
            each if each.startswith((" ", "keras-vit ")) else textwrap.fill(each, width)
            for each in text.strip("\n").split("\n\n")
        )


class _ShowKeys(argparse.Action):
    def __call__(self, parser, *_):
        from ..config import schema

        Table(schema.COLUMNS, schema.rows()).show(wrapped=schema.COLUMNS[2:])
        parser.exit()


def refuse_unquoted(words: Sequence[str]) -> None:
    """Raises `UsageError` where words of a command line, joined by spaces, name a path that exists.

    So a path was cut by the shell: `--config=own_photos:my photos,steps=3`.
    """
    for first, word in enumerate(words):
        text, end = word, first + 1
        # A name has few words, and a command thousands of photos, each with a name that exists.
        while not os.path.exists(word) and end < min(first + 9, len(words)):
            if words[end].startswith("-"):
                break
            text, end = f"{text} {words[end]}", end + 1
            value = text.partition("=")[2] if text.startswith("-") else text
            path = value.partition(":")[2] if ":" in word else ""
            if any(
                " " in each and os.path.exists(each) for each in (value, path, path.split(",")[0])
            ):
                expected = "Expected quotes around a path with spaces."
                raise UsageError(f"{expected} Did you mean {shlex.quote(text)}?")


def number(
    make: Callable[[str], float], accepts: Callable[[Any], bool], expected: str
) -> Callable[[str], float]:
    """Returns the type of an option: what `make` makes and `accepts` takes, said by `expected`."""

    def convert(text: str) -> float:
        with contextlib.suppress(ValueError):
            if accepts(value := make(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}. Received: {text}")

    return convert


at_least_1 = number(int, lambda value: value >= 1, "a whole number, at least 1")
whole = number(int, lambda value: value >= 0, "a whole number, at least 0")
at_least_0 = number(float, lambda value: 0 <= value < float("inf"), "a finite number, at least 0")
above_0 = number(float, lambda value: 0 < value < float("inf"), "a finite number, above 0")


def list_of(make: Callable[[str], Any], choices: Collection[Any] = ()) -> Callable[[str], list]:
    """Returns the type of an option that takes values, each once, separated by commas.

    They are among `choices`, if there are any.
    """

    def convert(text: str) -> list:
        values = [make(part) for part in text.split(",")]
        if unknown := [each for each in values if choices and each not in choices]:
            expected = f"expected one of {', '.join(choices)}. Received: {unknown[0]}"
            raise argparse.ArgumentTypeError(expected)
        # Rates name folders in six digits.
        if len({f"{each:g}" if isinstance(each, float) else each for each in values}) < len(values):
            raise argparse.ArgumentTypeError(f"expected each once. Received: {text}")
        return values

    convert.__name__ = f"list of {make.__name__}"
    return convert
