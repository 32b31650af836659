"""Runs the commands of a table.

A command is a file of the table's package, or a class of its module: a `Command`, whose docstring
is the help. --help is answered before TensorFlow and Keras are imported: `run` imports what needs
them.
"""

import argparse
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from keras_vit.name_suggestions import did_you_mean
from keras_vit.version import __version__

from ..errors import UsageError
from ..io.quiet_start import check_backend, quiet_start, without_libjpeg
from ..io.remote_stores import local_options
from .exit_status import status_of
from .options import CommandParser, refuse_unquoted


class Command(Protocol):
    """The file or the object of a command."""

    def add_options(self, parser: CommandParser) -> None:
        """Declares the options."""

    def run(self, options: argparse.Namespace) -> int | None:
        """Does the work; may return the exit status of the process, else 0."""


_HELPS = ("--help", "-h", "--helpfull")
# Values of options that are paths, as help calls them.
_PATHS = ("DIR", "FILE", "FILE[:ARGUMENT]", "PATH", "PHOTO", "RUN", "SOURCE", "ARTIFACT")


@dataclasses.dataclass(frozen=True)
class Commands:
    """A table of commands."""

    program: str  # how they are called, "keras-vit"
    package: str  # has the file of each, or is a module of their classes
    table: Mapping[str, str]  # {name of a command, file or class: its line in the help}
    usage: str  # the help, in which `{table}` becomes a line for each command
    # {name: (its line in the help, the commands behind it)}
    groups: Mapping[str, tuple[str, "Commands"]] = dataclasses.field(default_factory=dict)
    default: str = ""  # the command that has options without a name

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Runs the command that `arguments` name, and returns the exit status of the process.

        None takes the arguments of the process. `--debug` may stand before the name.
        """
        name, *options = name_and_options(arguments)
        if name in ("--help", "-h", "help"):
            print(self.help(), end="")
            return 0
        if name == "--version":
            print(f"keras-vit {__version__}")
            return 0
        if self.default and name.startswith("-") and name != "--completion":
            name, options = self.default, [name, *options]
        if name in self.groups:
            return self.groups[name][1].main(options)
        if name in self.table:
            flags = {flag: f"--{flag}" in options for flag in ("debug", "verbose")}
            return status_of(lambda: self._run(name, options), **flags)
        if name == "--completion" and self.default:
            return status_of(lambda: print(self.completion("".join(options))))
        known = [*self.table, *self.groups]
        expected = f"Expected a command, one of {', '.join(known)}. Received: {name or 'none'}."
        hint = did_you_mean(name, known)
        print(f"error: {hint}{expected} See {self.program} --help", file=sys.stderr)
        return 2

    def help(self) -> str:
        """Returns what --help prints."""
        rows = {**self.table, **{name: line for name, (line, _) in self.groups.items()}}
        width = max(map(len, rows)) + 2
        table = "\n".join(f"  {name:<{width}}{line}" for name, line in rows.items())
        return self.usage.format(table=table)

    def completion(self, shell: str) -> str:
        """Returns a script by which a shell completes commands, options, config keys and paths."""
        import shtab

        if shell not in ("bash", "zsh"):
            raise UsageError(f"Expected --completion bash or zsh. Received: {shell or 'nothing'}.")
        options = [self._completed(self.default)]
        root = argparse.ArgumentParser(self.program, parents=options, add_help=False)
        self._add_to(root)
        script = shtab.complete(root, shell)
        if shell == "zsh":  # Values stand behind a =, too, and a colon parts fields.
            script = script.replace("FILE[:ARGUMENT]", "FILE")
            return re.sub(r'"(--[\w.]+)\[(?=.*\]:)', r'"\1=[', script)
        # Behind a =, bash completes paths as it does elsewhere.
        return script.replace("-o bashdefault", "-o bashdefault -o default")

    def _add_to(self, parser):
        """Adds the commands to a parser, below which a shell finds their options."""
        commands = parser.add_subparsers()
        for name, line in self.table.items():
            commands.add_parser(name, help=line, parents=[self._completed(name)], add_help=False)
        for name, (line, group) in self.groups.items():
            group._add_to(commands.add_parser(name, help=line))

    def _completed(self, name):
        """Returns the parser of a command with all config keys, which knows where paths stand."""
        import shtab

        from ..config import schema

        parser = self.parser(name)
        if parser.takes_overrides:
            for key in schema.KEYS:
                text = key.meaning.replace("%", "%%")
                parser.add_argument(f"--config.{key.name}", choices=key.choices or None, help=text)
        for action in parser._actions:
            if action.metavar in _PATHS:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        return parser

    def parser(self, name: str) -> CommandParser:
        """Returns the parser of a command."""
        command = self._import(name)
        parser = CommandParser(f"{self.program} {name}", inspect.getdoc(command))
        command.add_options(parser)
        return parser

    def _import(self, name: str) -> Command:
        with quiet_start():
            found = vars(importlib.import_module(self.package)).get(name)
            if inspect.isclass(found):
                return cast(Command, found())
            return cast(Command, importlib.import_module(f"{self.package}.{name}"))

    def _run(self, name, arguments):
        if not {*_HELPS} & {*arguments}:
            check_backend()
            refuse_unquoted(arguments)
        parser = self.parser(name)
        options = parser.parse_args([text for text in arguments if text != "--debug"])
        with without_libjpeg(), local_options(options, parser.stores):
            return self._import(name).run(options)


def name_and_options(arguments: Sequence[str] | None) -> list[str]:
    """Returns the words of a command line, `--debug` last; the first is "" where there are none."""
    given = sys.argv[1:] if arguments is None else arguments
    return sorted(given, key="--debug".__eq__) or [""]
