"""`keras-vit compare RUN RUN…`: several runs on one page, what differs in their configs first.

Prints where the configs of runs differ and what each run reached; --output also draws the curves
of all runs. Runs may be unfinished. A folder of runs, as of `train --seeds`, stands for them.

  keras-vit compare runs/a runs/b runs/c --output=comparison.html
"""

import argparse

from ..command_line.options import CommandParser
from ..config import schema
from ..errors import UsageError
from ..io.atomic import write_text
from ..io.paths import any_path
from ..io.printed_table import Table
from ..reporting.metrics_csv import read_metrics
from ..source_facts import read_run_config, runs_in
from ..tasks import compared_by


def add_options(parser: CommandParser) -> None:
    text = "run directories, two or more, or folders of them"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=any_path, help=text)
    parser.add_path("--output", "also write a page of HTML", metavar="FILE")


def run(options: argparse.Namespace) -> None:
    runs = {str(path): path for each in options.runs for path in runs_in(each) or [each]}
    missing = [str(each) for each in runs.values() if not (each / "metrics.csv").exists()]
    if missing or len(runs) < 2:
        received = f"{missing[0]}, without metrics.csv" if missing else "one"
        raise UsageError(f"Expected two run directories or more. Received: {received}.")
    configs = [read_run_config(each / "config.json") for each in runs.values()]
    series = {name: read_metrics(path / "metrics.csv") for name, path in runs.items()}
    changed, results = _differences(runs, configs), _results(series, configs)
    if options.output:
        from ..io.quiet_start import import_tensorflow

        import_tensorflow()
        from ..reporting.html_pages import comparison_html

        write_text(options.output, comparison_html(series, changed, results))
    for table in (changed, results):
        table.show(wrapped=table.columns)
    if options.output:
        print(f"Written to {options.output}")


def _differences(runs, configs):
    """Returns a table of the config keys whose values differ, and of data that does."""
    flat = [schema.flatten(config) for config in configs]
    for each in flat:
        data = each.pop("data")
        each |= {"images that train": data["train"]["digest"][:8], **data.get("own", {})}
    keys = dict.fromkeys(key for each in flat for key in each)
    values = {key: [str(each.get(key, "–")) for each in flat] for key in keys}
    rows = [(key, *found) for key, found in values.items() if len(set(found)) > 1]
    return Table(("key", *runs), rows or [("none", *("" for _ in runs))], "differences of configs")


def _results(series, configs):
    """Returns a table of the best and the last evaluation of each run, and its last loss."""
    rows = []
    for (name, of_run), config in zip(series.items(), configs, strict=True):
        metric, steps = compared_by(config), [step for step, _ in of_run.get("loss", ())]
        found = of_run.get(metric.column, [])
        best = max(found, key=lambda row: metric.score(row[1]), default=None)
        shown = (
            [metric.text(best[1]), f"{best[0]:,}", metric.text(found[-1][1])] if best else ["–"] * 3
        )
        loss = f"{of_run['loss'][-1][1]:.4g}" if steps else "–"
        done = f"{max(steps, default=0):,} of {config['total_steps']:,}"
        rows.append((name, metric.title, *shown, loss, done))
    columns = ("run", "compared by", "best", "at step", "last", "training loss", "steps")
    return Table(columns, rows, "results")
