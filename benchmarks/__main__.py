"""`python -m benchmarks COMMAND …`: measures this package, and other libraries beside it."""

import ast
import importlib
import pathlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.harness import options
from benchmarks.harness.process import ProcessError
from keras_vit.training.errors import TrainingError, did_you_mean
from keras_vit.training.exit_status import exit_process, status_of
from keras_vit.training.io.quiet_start import check_backend, quiet_start


class Command(NamedTuple):
    """Where a command is defined, and the first line of its docstring."""

    module: str
    summary: str


def commands() -> dict[str, Command]:
    """Returns the public functions in the files of this folder that return None, by name."""
    return {
        node.name: Command(f"benchmarks.{file.stem}", str(ast.get_docstring(node)).split("\n")[0])
        for file in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        if node.name[0] != "_" and node.returns and ast.unparse(node.returns) == "None"
    }


def main(argv: Sequence[str]) -> int:
    """Runs the command that `argv` names; returns the exit code."""
    found = commands()
    lines = [f"  {name:22}{command.summary}" for name, command in found.items()]
    usage = "\n".join(
        [
            "usage: python -m benchmarks COMMAND [options]",
            "",
            *lines,
            "",
            "python -m benchmarks COMMAND --help lists the options of one.",
        ]
    )
    name, *arguments = argv or ["(nothing)"]
    if name in ("-h", "--help"):
        print(usage)
        return 0
    if name not in found:
        hint = did_you_mean(name, found)
        print(f"{usage}\n\nExpected a command. Received: {name}.{hint}", file=sys.stderr)
        return 2
    return status_of(lambda: _run(found[name].module, name, arguments), "--debug" in arguments)


def _run(module, name, arguments):
    if not {"-h", "--help"} & {*arguments}:
        check_backend()
    with quiet_start():
        command = getattr(importlib.import_module(module), name)
    try:
        options.run(command, arguments)
    except ProcessError as error:
        raise TrainingError(error) from error


if __name__ == "__main__":
    exit_process(lambda: main(sys.argv[1:]))
