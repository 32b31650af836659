"""The figures of the ablation studies. Each function returns a `matplotlib.figure.Figure`."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from training.protocols.ablation import SHOTS, Score, by_cell, learning_curve, study_module

_LABEL = f"{SHOTS}-shot linear accuracy (%)"


def _figure(panels=1, width=4.6):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * panels, 3.4), dpi=130, layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _percent(pair):
    return 100 * pair[0], 100 * pair[1]


def draw(study: str, scores: Sequence[Score], workdir):
    """Draws a study; `workdir` holds its runs."""
    figure = _FIGURES[study](scores, pathlib.Path(workdir))
    figure.suptitle(study_module(study).TITLE, fontsize=10)
    return figure


def _position(scores, workdir):
    paper = study_module("position").PAPER
    cells = by_cell(scores, "few_shot")
    figure, (ours, theirs) = _figure(2)
    places = range(len(cells))
    means, deviations = zip(*map(_percent, cells.values()), strict=True)
    ours.bar(places, means, yerr=deviations, capsize=3)
    ours.set_title("this run", fontsize=9)
    theirs.bar(places, [100 * paper[cell] for cell in cells], color="tab:gray")
    theirs.set_title("paper: ViT-B/16 from JFT, 5-shot ImageNet", fontsize=9)
    for axis in (ours, theirs):
        axis.set_xticks(places, list(cells), rotation=45, ha="right", fontsize=8)
        axis.set_ylabel(_LABEL)
        heights = [bar.get_height() for bar in axis.patches]
        axis.set_ylim(max(0, min(heights) - 5), max(heights) + 3)
    return figure


def _head(scores, workdir):
    figure, (axis,) = _figure()
    for cell in by_cell(scores, "top1"):
        for score in (each for each in scores if each.cell == cell):
            curve = learning_curve(workdir / cell / f"seed_{score.seed}")
            steps, accuracies = zip(*curve, strict=True)
            first = score is next(each for each in scores if each.cell == cell)
            color = axis._get_lines.get_next_color() if first else axis.lines[-1].get_color()
            axis.plot(
                steps,
                [100 * accuracy for accuracy in accuracies],
                "o-",
                color=color,
                label=cell if first else None,
            )
    axis.set_xlabel("step")
    axis.set_ylabel("top-1 accuracy (%)")
    axis.legend(fontsize=8)
    return figure


def _shape(scores, workdir):
    cells, compute = by_cell(scores, "few_shot"), by_cell(scores, "gmacs")
    lines: dict[str, list] = {}
    for cell in cells:
        line, _, _ = cell.partition("_")
        if line != "base":
            lines.setdefault(line, []).append(cell)
    figure, (axis,) = _figure()
    base = compute.get("base", next(iter(compute.values())))[0]
    for line, members in lines.items():
        points = sorted(
            (compute[cell][0] / base, *_percent(cells[cell]))
            for cell in (*members, *(["base"] if "base" in cells else []))
        )
        x, y, deviation = zip(*points, strict=True)
        axis.errorbar(x, y, yerr=deviation, fmt="o-", markersize=4, capsize=2, label=line)
    axis.set_xscale("log")
    axis.set_xlabel("compute relative to the base")
    axis.set_ylabel(_LABEL)
    axis.legend(fontsize=8)
    return figure


def _axial(scores, workdir):
    cells = by_cell(scores, "few_shot")
    figure, axes = _figure(2)
    for axis, field, label in (
        (axes[0], "exaflops", "compute of training (exaFLOPs)"),
        (axes[1], "images_per_second", "inference (images/s)"),
    ):
        for cell, (x, _) in by_cell(scores, field).items():
            y, deviation = _percent(cells[cell])
            axis.errorbar(x, y, yerr=deviation, fmt="o", capsize=2)
            axis.annotate(cell, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
        axis.set_xscale("log")
        axis.margins(x=0.2)
        axis.set_xlabel(label)
        axis.set_ylabel(_LABEL)
    return figure


def _data_size(scores, workdir):
    models = dict.fromkeys(score.cell.rpartition("_")[0] for score in scores)
    figure, axes = _figure(2)
    for axis, field, label in (
        (axes[0], "top1", "best top-1 on held-out images (%)"),
        (axes[1], "few_shot", _LABEL),
    ):
        cells, sizes = by_cell(scores, field), by_cell(scores, "images")
        for model in models:
            points = sorted(
                (sizes[cell][0], *_percent(cells[cell]))
                for cell in cells
                if cell.rpartition("_")[0] == model
            )
            x, y, deviation = zip(*points, strict=True)
            axis.errorbar(x, y, yerr=deviation, fmt="o-", markersize=4, capsize=2, label=model)
        axis.set_xscale("log")
        axis.set_xlabel("training images")
        axis.set_ylabel(label)
        axis.legend(fontsize=8)
    return figure


_FIGURES = {
    "position": _position,
    "head": _head,
    "shape": _shape,
    "axial": _axial,
    "data_size": _data_size,
}
