"""`keras-vit report RUN`: draws the `report.html` of a finished run again.

Writes report.html of a finished run anew: one page, without a network, of its curves, confusion
matrix, examples with attention, and configuration. Training writes it by itself.

  keras-vit report runs/quickstart
"""

from ..exit_status import command_main
from ..io.quiet_start import import_tensorflow


def _add_options(parser):
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_data_dir()


def _report(options):
    import_tensorflow()
    from ..reporting.collect_run_results import report_run

    print(f"Written to {report_run(options.run, data_dir=options.data_dir)}")


main = command_main("keras-vit report", __doc__, _add_options, _report)
