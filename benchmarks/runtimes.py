"""`python -m benchmarks runtimes`: every family of models in every runtime of exported files.

Exports a small model of each family, with random weights, and runs it beside the model in each
runtime that is on this machine. A cell is the largest error of the logits, in units of the largest
of them, and what an accelerator did not take.
"""

import json
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.harness import options
from benchmarks.small_families import FAMILIES, IMAGE_SIZE, small_model
from export.errors import RuntimeMissing
from export.onnx.to_onnx import to_onnx
from export.tflite.to_tflite import to_tflite
from export.verification.report import Report
from export.verification.runtimes.runtime_table import ONNX, RUNTIMES, TFLITE
from export.verification.verify import verify
from training.io.atomic import write_text
from training.reporting.table import Table

IMAGES = 3
COMPARED = [name for name, row in RUNTIMES.items() if row.format in (TFLITE, ONNX)]
# These compute a second time, in float16.
GPUS = ("gpu", "browser-gpu")
WRONG = "**wrong**"


def main(argv: Sequence[str]) -> int:
    """Prints the table; the exit status is 1 if any runtime that is here computes it wrong."""
    parser = options.parser("runtimes", __doc__)
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    parser.add_argument("--runtime", choices=COMPARED, action="append", help="default: all")
    parser.add_argument("--weights", choices=("none", "float16"), default="none", help="of files")
    parser.add_argument(
        "--cells", type=pathlib.Path, help="JSON of what was found already, to go on from and with"
    )
    chosen = parser.parse_args(argv)
    cells = _read(chosen.cells)
    missing: dict[str, str] = {}
    for family in chosen.family or FAMILIES:
        found = cells.setdefault(family, {})
        pending = [name for name in chosen.runtime or COMPARED if name not in {*found, *missing}]
        for column, cell in _cells(family, pending, chosen.weights, missing):
            found[column] = cell
            _write(chosen.cells, cells)
    columns = [each for each in _columns() if any(each in found for found in cells.values())]
    rows = [
        (family, *(cells[family].get(column, "–") for column in columns))
        for family in FAMILIES
        if cells.get(family)
    ]
    print(Table(("family", *columns), rows).markdown())
    for name, reason in missing.items():
        print(f"{name} is not here: {reason}")
    return int(any(WRONG in cell for row in rows for cell in row))


def _columns():
    return [
        column for name in COMPARED for column in ([name, _half(name)] if name in GPUS else [name])
    ]


def _half(name):
    return f"{name}, in float16"


def _read(file):
    return json.loads(file.read_text()) if file and file.exists() else {}


def _write(file, cells):
    if file:
        write_text(file, json.dumps(cells, indent=1))


def _cells(
    family: str, names: Sequence[str], weights: str, missing: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yields (column, cell) of a family; adds to `missing` which runtimes are not here, and why."""
    if not names:
        return
    model = small_model(family)
    size = (IMAGES, IMAGE_SIZE, IMAGE_SIZE, 3)
    images = np.random.default_rng(1).uniform(0, 1, size).astype("float32")
    with tempfile.TemporaryDirectory() as directory:
        tflite = to_tflite(model, pathlib.Path(directory) / "m.tflite", quantization=weights)
        for name in names:
            try:
                file = tflite
                if RUNTIMES[name].format == ONNX:
                    file = to_onnx(model, tflite.with_suffix(".onnx"))
                report = verify(model, file, images, runtime=name, costs=False)
            except RuntimeMissing as error:
                missing[name] = str(error)
                continue
            if name in GPUS:
                half = report.float16_error
                yield _half(name), "–" if half is None else f"{half / report.scale:.0e}"
            yield name, shown(report)


def shown(report: Report) -> str:
    """Returns the cell of a report."""
    text = f"{report.max_error / report.scale:.0e}"
    if report.fully_delegated is False:
        outside = {each.split(":")[0] for each in report.fallbacks or ()}
        text += f"; not delegated: {', '.join(sorted(outside)) or 'a part'}"
    return text if report.ok else f"{WRONG}: {text}"
