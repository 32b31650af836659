"""The scores of an ablation study as tables."""

import dataclasses
from collections.abc import Mapping, Sequence

from training.protocols.ablation_study import SHOTS, Score
from training.reporting.mean_deviation import MeanDeviation
from training.reporting.table import Table


def by_cell(scores: Sequence[Score], field: str) -> dict[str, MeanDeviation]:
    """Returns {cell: mean and deviation over the seeds} of a field of `Score`."""
    values: dict[str, list[float]] = {}
    for score in scores:
        values.setdefault(score.cell, []).append(getattr(score, field))
    return {cell: MeanDeviation.of(of_seeds) for cell, of_seeds in values.items()}


def study_table(
    title: str, scores: Sequence[Score], paper: Mapping[str, float] | None = None
) -> Table:
    """Returns the table of a study: a row for each cell.

    Args:
        title: of the table.
        scores: of all cells and seeds.
        paper: {cell: the paper's accuracy in percent}, shown beside if given.
    """
    shots, top1 = by_cell(scores, "few_shot"), by_cell(scores, "top1")
    rows = []
    for cell, score in {score.cell: score for score in scores}.items():
        row = [
            cell,
            f"{score.parameters / 1e6:.2f}",
            f"{1000 * score.gmacs:.1f}",
            str(shots[cell].percent),
            str(top1[cell].percent),
        ]
        rows.append(row + ([f"{paper[cell]:.2f}"] if paper else []))
    columns = ["cell", "M parameters", "M MACs", f"{SHOTS}-shot %", "top-1 %"]
    return Table(columns + (["paper %"] if paper else []), rows, title)


def every_score(scores: Sequence[Score]) -> Table:
    """Returns all scores with all fields, one row for each run."""
    names = [field.name for field in dataclasses.fields(Score)]
    return Table(names, [[getattr(score, name) for name in names] for score in scores])
