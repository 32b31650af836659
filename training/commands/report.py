"""`keras-vit report RUN`: draws the `report.html` of a finished run again.

Writes report.html of a finished run anew: one page, without a network, of its curves, confusion
matrix, examples with attention, and configuration. Training writes it by itself.

  keras-vit report runs/quickstart
"""

import argparse

from ..command_line.options import CommandParser
from ..io.quiet_start import import_tensorflow


def add_options(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", store="change", help="run directory")
    parser.add_data_dir()


def run(options: argparse.Namespace) -> None:
    import_tensorflow()
    from ..reporting.collect_run_results import report_run

    print(f"Written to {report_run(options.run, data_dir=options.data_dir)}")
