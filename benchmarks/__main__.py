"""`python -m benchmarks COMMAND …`: measures this package, and other libraries beside it."""

import ast
import importlib
import pathlib
import sys
from collections.abc import Sequence

from benchmarks.harness import options
from keras_vit.suggestions import did_you_mean
from keras_vit.training.exit_status import exit_process, status_of
from keras_vit.training.io.quiet_start import check_backend, quiet_start


def commands() -> dict[str, tuple[str, str]]:
    """Returns {name: (module, first line of the docstring)} of the commands.

    They are the public functions in the files of this folder that return None.
    """
    return {
        node.name: (f"benchmarks.{file.stem}", str(ast.get_docstring(node)).split("\n")[0])
        for file in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        if node.name[0] != "_" and node.returns and ast.unparse(node.returns) == "None"
    }


def main(argv: Sequence[str]) -> int:
    """Runs the command that `argv` names; returns the exit code."""
    found = commands()
    lines = [f"  {name:22}{summary}\n" for name, (_, summary) in found.items()]
    usage = (
        f"usage: python -m benchmarks COMMAND [options]\n\n{''.join(lines)}\n"
        "python -m benchmarks COMMAND --help lists the options of one."
    )
    name, *arguments = argv or ["(nothing)"]
    if name in ("-h", "--help"):
        print(usage)
        return 0
    if name not in found:
        hint = did_you_mean(name, found)
        print(f"{usage}\n\n{hint}Expected a command. Received: {name}.", file=sys.stderr)
        return 2

    def run():
        if not {"-h", "--help"} & {*arguments}:
            check_backend()
        with quiet_start():
            command = getattr(importlib.import_module(found[name][0]), name)
        options.run(command, arguments)

    return status_of(run, "--debug" in arguments)


if __name__ == "__main__":
    exit_process(lambda: main(sys.argv[1:]))
