"""`keras-vit budget`: what the paper's experiments cost to run.

Prints the floating-point operations of the paper's pre-training and transfer runs, counted by its
convention (forward and backward, two operations per multiply-accumulate), and the hours that
they take at a rate that you know your hardware to sustain.

  keras-vit budget --teraflops=100
"""

from keras_vit.training.command_options import above_0, list_of
from keras_vit.training.exit_status import command_main
from keras_vit.training.io.quiet_start import import_tensorflow


def _add_options(parser):
    text = "10^12 operations per second that training sustains, on all devices together"
    parser.add_argument("--teraflops", type=above_0, default=100.0, help=text)
    models = ["ViT-B/32", "ViT-B/16", "ViT-L/32", "ViT-L/16", "ViT-H/14"]
    text = "names, separated by commas"
    parser.add_argument("--models", type=list_of(str), default=models, help=text)


def _print(options):
    import_tensorflow()
    from keras_vit.training.reporting.budget import experiment_table

    print(experiment_table(options.models, options.teraflops).markdown(), end="")


main = command_main("keras-vit budget", __doc__, _add_options, _print)
