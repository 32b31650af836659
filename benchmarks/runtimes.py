"""`python -m benchmarks runtimes`: every family of models in every runtime of exported files.

Exports a small model of each family, with random weights, and runs it beside the model in each
runtime that is on this machine. A cell is the largest error of the logits, in units of the largest
of them, and what an accelerator did not take.
"""

import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np

from benchmarks.harness import options
from benchmarks.small_families import FAMILIES, IMAGE_SIZE, small_model
from export.errors import RuntimeMissing
from export.tflite.to_tflite import to_tflite_files
from export.verification.report import Report
from export.verification.runtimes.runtime_table import RUNTIMES, TFLITE
from export.verification.verify import verify
from training.reporting.table import Table

IMAGES = 3
# A file's weights; activations are float32 unless a runtime says otherwise.
FILES = ("none", "float16")


def main(argv: Sequence[str]) -> int:
    """Prints the table; the exit status is 1 if any runtime that is here computes it wrong."""
    parser = options.parser("runtimes", __doc__)
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    parser.add_argument("--runtime", choices=RUNTIMES, action="append", help="default: all")
    chosen = parser.parse_args(argv)
    names = [name for name, row in RUNTIMES.items() if row.format == TFLITE]
    names = [name for name in names if name in (chosen.runtime or RUNTIMES)]
    missing: dict[str, str] = {}
    rows, ok = [], True
    for family in chosen.family or FAMILIES:
        reports = _reports(family, names, missing)
        ok = ok and all(report.ok for report in reports.values())
        found = [reports.get(column) for column in _columns(names)]
        rows.append((family, *(shown(report) if report else "–" for report in found)))
    titles = [f"{name}, float16 weights" if kind else name for name, kind in _columns(names)]
    print(Table(("family", *titles), rows).markdown())
    for name, reason in missing.items():
        print(f"{name} is not here: {reason}")
    return 0 if ok else 1


def _columns(names):
    """Returns (runtime, weights in float16 or not) of each column."""
    return [(name, half) for half in (False, True) for name in names]


def _reports(family, names, missing):
    """Returns the reports of a family by column."""
    model = small_model(family)
    size = (IMAGES, IMAGE_SIZE, IMAGE_SIZE, 3)
    images = np.random.default_rng(1).uniform(0, 1, size).astype("float32")
    reports: dict[tuple[str, bool], Report] = {}
    with tempfile.TemporaryDirectory() as directory:
        files = {kind: pathlib.Path(directory) / f"{kind}.tflite" for kind in FILES}
        to_tflite_files(model, files)
        for name, half in _columns(names):
            if name not in missing:
                file = files["float16" if half else "none"]
                try:
                    reports[name, half] = verify(model, file, images, runtime=name, costs=False)
                except RuntimeMissing as error:
                    missing[name] = str(error)
    return reports


def shown(report: Report) -> str:
    """Returns the cell of a report."""
    text = f"{report.max_error / report.scale:.0e}"
    if report.float16_error is not None:
        text += f", in float16 {report.float16_error / report.scale:.0e}"
    if report.fully_delegated is False:
        outside = {each.split(":")[0] for each in report.fallbacks or ()}
        text += f"; not delegated: {', '.join(sorted(outside)) or 'a part'}"
    return text if report.ok else f"**wrong**: {text}"
