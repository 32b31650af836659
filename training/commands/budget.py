"""`python -m training budget`: what the paper's experiments cost to run.

Prints the floating-point operations of the paper's pre-training and transfer runs, counted by its
convention (forward and backward, two operations per multiply-accumulate), and the hours that
they take at a rate that you know your hardware to sustain.

  python -m training budget --teraflops=100
"""

import sys

from training.command_options import CommandParser, list_of
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = CommandParser("python -m training budget", __doc__)
    parser.add_argument(
        "--teraflops",
        type=float,
        default=100.0,
        help="10^12 operations per second that training sustains, on all devices together",
    )
    parser.add_argument(
        "--models",
        type=list_of(str),
        default=["ViT-B/32", "ViT-B/16", "ViT-L/32", "ViT-L/16", "ViT-H/14"],
        help="names, separated by commas",
    )
    return parser


def _print(options):
    import_tensorflow()
    from training.reporting.experiment_hours import experiment_table

    print(experiment_table(options.models, options.teraflops).markdown(), end="")


main = command_main(_parser, _print)

if __name__ == "__main__":
    sys.exit(main())
