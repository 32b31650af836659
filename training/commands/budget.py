"""`python -m training budget`: what the paper's experiments cost to run."""

import sys

from training.commands import command
from training.io.quiet_start import import_tensorflow

DESCRIPTION = """\
Prints the floating-point operations of the paper's pre-training and transfer runs, counted by its
own convention (forward and backward, two operations per multiply-accumulate), and the hours that
they take at a rate that you know your hardware to sustain.

  python -m training budget --teraflops=100
"""


def main(arguments=None):
    """Runs the command and returns the exit status of the process."""
    options = _options().parse_args(arguments)
    return command.run(lambda: _print(options))


def _options():
    parser = command.parser("training budget", DESCRIPTION)
    parser.add_argument(
        "--teraflops",
        type=float,
        default=100.0,
        help="10^12 operations per second that training sustains, on all devices together",
    )
    parser.add_argument(
        "--models",
        type=command.list_of(str),
        default=["ViT-B/32", "ViT-B/16", "ViT-L/32", "ViT-L/16", "ViT-H/14"],
    )
    return parser


def _print(options):
    import_tensorflow()
    from training.reporting.compute_budget import table

    print(table(options.models, options.teraflops).markdown(), end="")


if __name__ == "__main__":
    sys.exit(main())
