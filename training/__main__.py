"""`python -m training COMMAND`; options alone train."""

import importlib
import sys

COMMANDS = {
    "train": "train a model, or resume a run (the default: the word may be left out)",
    "evaluate": "accuracy on every image of a split",
    "few_shot": "linear few-shot accuracy of a frozen model",
    "sweep": "the paper's fine-tuning protocol on one data set",
    "vtab": "the 19 tasks of VTAB-1k",
    "ablation": "the paper's ablations, trained and drawn",
    "analyze": "what a trained model looks at, as pictures and tables",
    "budget": "what the paper's experiments cost to run",
    "data": "list, check and prepare data sets",
}


def usage() -> str:
    """Returns the help of the commands."""
    lines = [f"  {name:<10}{meaning}" for name, meaning in COMMANDS.items()]
    return (
        "usage: python -m training COMMAND [options]\n"
        "       python -m training --config=FILE[:ARGUMENT] --workdir=DIR\n\n"
        + "\n".join(lines)
        + "\n\nEach command answers --help.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns the exit status of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(usage(), end="")
        return 0
    if arguments[0].startswith("-"):
        arguments = ["train", *arguments]
    name, *options = arguments
    name = name.replace("-", "_")
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        print(f"error: Expected a command, one of {known}. Received: {name}", file=sys.stderr)
        return 2
    return importlib.import_module(f"training.commands.{name}").main(options)


if __name__ == "__main__":
    sys.exit(main())
