"""`keras-vit COMMAND`; options alone train."""

import importlib
from collections.abc import Sequence

from keras_vit.training.exit_status import exit_process, run_command

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


_USAGE = """\
usage: keras-vit COMMAND [options]
       keras-vit --config=FILE[:ARGUMENT] --workdir=DIR

{commands}

Each command answers --help; `keras-vit export --help` names those that hand a model over.
`keras-vit --version` shows the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status of the process."""
    lines = [f"  {name:<10}{meaning}" for name, meaning in COMMANDS.items()]
    usage = _USAGE.format(commands="\n".join(lines))
    return run_command(_main_of, COMMANDS, usage, arguments, default="train")


def _main_of(name):
    return importlib.import_module(f"keras_vit.training.commands.{name}").main


if __name__ == "__main__":
    exit_process(main)
