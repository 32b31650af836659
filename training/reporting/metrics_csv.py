"""Reading the `metrics.csv` of a run."""

import csv
import io
import os

from ..io.paths import any_path


def metric_rows(path: str | os.PathLike) -> list[dict[str, str]]:
    """Returns the rows of a `metrics.csv`, {column: text of a number or ""}.

    Half a row at its end, which a killed process may leave, is passed over. Raises ValueError,
    naming the line, if it is not a table of numbers with a column `step`.
    """
    content = any_path(path).read_bytes()
    rows: list[dict[str, str]] = []
    try:
        text = content[: content.rfind(b"\n") + 1].decode()
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"line {reader.line_num} has other columns than the first")
            int(row["step"])
            for value in row.values():
                float(value or 0)
            rows.append(row)
    except (ValueError, KeyError, csv.Error) as error:
        raise ValueError(
            f"Expected the metrics of a run, a table of numbers with a column step. {path} is "
            f"damaged after {len(rows)} rows: {error}. Remove the damaged line, or the file."
        ) from error
    return rows


def read_metrics(path: str | os.PathLike) -> dict[str, list[tuple[int, float]]]:
    """Returns {column: [(step, value), ...]} of a `metrics.csv`, without blank cells.

    Raises as `metric_rows`.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    for row in metric_rows(path):
        step = int(row.pop("step"))
        for name, value in row.items():
            if value:
                series.setdefault(name, []).append((step, float(value)))
    return series
