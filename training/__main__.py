"""`python -m training COMMAND`; options alone train."""

import importlib
import sys
from collections.abc import Sequence

from training.command_options import as_called
from training.errors import did_you_mean
from training.exit_status import exit_process

COMMANDS = {
    "train": "train a model, or resume a run (the default: the word may be left out)",
    "predict": "what is on a photo, by name and probability",
    "evaluate": "accuracy on every image of a split",
    "few_shot": "linear few-shot accuracy of a frozen model",
    "sweep": "the paper's fine-tuning protocol on one data set",
    "vtab": "the 19 tasks of VTAB-1k",
    "ablation": "the paper's ablations: runs, tables and figures",
    "analyze": "what a trained model looks at, as pictures and tables",
    "budget": "what the paper's experiments cost to run",
    "report": "write the page of a finished run again",
    "data": "list, check and prepare data sets",
}


def usage() -> str:
    """Returns the help of the commands."""
    lines = [f"  {name:<10}{meaning}" for name, meaning in COMMANDS.items()]
    return as_called(
        "usage: python -m training COMMAND [options]\n"
        "       python -m training --config=FILE[:ARGUMENT] --workdir=DIR\n\n"
        + "\n".join(lines)
        + "\n\nEach command answers --help.\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status of the process."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("--help", "-h", "help"):
        print(usage(), end="")
        return 0
    if name.startswith("-"):
        name, options = "train", [name, *options]
    name = name.replace("-", "_")
    if name not in COMMANDS:
        print(
            as_called(
                f"error: Expected a command, one of {', '.join(COMMANDS)}. Received: "
                f"{name or 'none'}.{did_you_mean(name, COMMANDS)} See python -m training --help"
            ),
            file=sys.stderr,
        )
        return 2
    return importlib.import_module(f"training.commands.{name}").main(options)


if __name__ == "__main__":
    exit_process(main)
