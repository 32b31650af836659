"""Reading the `metrics.csv` of a run."""

import csv
import os


def read_metrics(path: str | os.PathLike) -> dict[str, list[tuple[int, float]]]:
    """Returns {column: [(step, value), ...]} of a `metrics.csv`, blank cells left out."""
    series: dict[str, list[tuple[int, float]]] = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            step = int(row.pop("step"))
            for name, value in row.items():
                if value not in ("", None):
                    series.setdefault(name, []).append((step, float(value)))
    return series
