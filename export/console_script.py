"""`keras-vit COMMAND`: the commands of `python -m training`, and `keras-vit export COMMAND`.

An installed script does not look for modules in the current folder, so that a user's own
`training.py` or `export.py` there is not taken for the package's.
"""

import pathlib
import runpy
import sys
from collections.abc import Sequence
from typing import NoReturn

from export import __main__ as export_command
from training import __main__ as training_command
from training.exit_status import exit_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status of the process.

    Args:
        arguments: of the command line; None is those of the process.
    """
    # Not imported: that needs a `keras_vit` which is ours, and takes seconds.
    installation = pathlib.Path(__file__).parents[1] / "keras_vit" / "installation.py"
    runpy.run_path(str(installation))["warn_of_namesake"]()
    name, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name == "export":
        return export_command.main(options)
    status = training_command.main([name, *options])
    if name in ("--help", "-h", "help"):
        print("\n`keras-vit export --help` names the commands that hand a model over.")
    return status


def script() -> NoReturn:
    """Is what the installed script calls: `main`, and the end of the process."""
    exit_process(main)
