"""`python -m benchmarks COMMAND …`: measures this package, and other libraries beside it.

The options of a command are the arguments of its function, explained by its docstring.
"""

import importlib
import inspect
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Literal, get_args, get_origin

from keras_vit.training.command_options import CommandParser, list_of
from keras_vit.training.exit_status import exit_process, run_command, status_of
from keras_vit.training.io.quiet_start import check_backend, quiet_start

# A command is a function; the file that has it.
COMMANDS = {
    "compare_libraries": "compare_libraries",
    "compare_pipelines": "input",
    "compare_runtimes": "speed_in_runtimes",
    "dress_rehearsal": "dress_rehearsal",
    "figure_11_throughput": "figure_11_and_table_6",
    "runtimes": "errors_of_families_in_runtimes",
    "startup": "startup",
    "table_6_exaflops": "figure_11_and_table_6",
    "tpu_compile": "tpu_compile",
    "web_page": "speed_in_runtimes",
}
_USAGE = f"""\
usage: python -m benchmarks COMMAND [options]

{", ".join(COMMANDS)}

python -m benchmarks COMMAND --help explains one.
"""

# The options that several commands have, with one spelling and one meaning.
_SHARED = {
    "batch_size": "images per step",
    "batches": "measured in every turn",
    "image_size": "in pixels",
    "image_sizes": "in pixels",
    "images": "folder of JPEGs, sub-folders included",
    "mode": "infer, or train: a training step",
    "model": "a name, for example ViT-Ti/16",
    "models": "names, for example ViT-Ti/16",
    "precision": "float32 or bfloat16",
    "rounds": "turns of each; medians over them are printed",
    "seconds": "length of a turn",
    "threads": "processor cores to use; 0: all",
}


def main(argv: Sequence[str]) -> int:
    """Runs the command that `argv` names; returns the exit code."""
    return run_command(_main_of, COMMANDS, _USAGE, argv or ["--help"])


def _main_of(name):
    def run(arguments):
        if not {"-h", "--help"} & {*arguments}:
            check_backend()
        with quiet_start():
            command = getattr(importlib.import_module(f"benchmarks.{COMMANDS[name]}"), name)
        options = vars(parser(command).parse_args(arguments))
        options.pop("debug", None)
        command(**options)

    return lambda arguments: status_of(lambda: run(arguments), "--debug" in arguments)


def parser(function: Callable[..., None]) -> CommandParser:
    """Returns the parser of a command.

    Its description is the docstring, whose "Args:" explain the options that no other command has.
    The hint of an argument gives the type of its option: `Literal` is one of these values,
    `Sequence` values separated by commas, `bool` a flag. An argument without a default is required.
    """
    description, _, explained = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    helps = _SHARED | dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", explained, re.MULTILINE))
    result = CommandParser(f"python -m benchmarks {function.__name__}", description)
    for name, argument in inspect.signature(function).parameters.items():
        text = " ".join(helps[name].split()).rstrip(".").replace("%", "%%")
        kind, default = argument.annotation, argument.default
        if kind is bool:
            result.add_argument(f"--{name}", action="store_true", help=text)
        elif default is argument.empty:
            result.add_argument(f"--{name}", type=_type(kind), required=True, help=text)
        else:
            result.add_argument(f"--{name}", type=_type(kind), default=default, help=text)
    return result


def _type(hint):
    """Returns the function that makes a value of the text of an option."""
    if get_origin(hint) is Sequence:
        return list_of(_type(*get_args(hint)))
    if get_origin(hint) is not Literal:
        return hint
    known = get_args(hint)

    def value(text):
        if text not in known:
            raise ArgumentTypeError(f"expected one of {', '.join(known)}. Received: {text}")
        return text

    return value


if __name__ == "__main__":
    exit_process(lambda: main(sys.argv[1:]))
