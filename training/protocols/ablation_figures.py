"""The figures of the ablation studies."""

import pathlib
from collections.abc import Sequence

from matplotlib.figure import Figure

from keras_vit.training.protocols import ablation
from keras_vit.training.reporting.figures import new_figure

_LABEL = f"{ablation.SHOTS}-shot linear accuracy (%)"


def study_figure(study: str, scores: Sequence[ablation.Score], workdir: pathlib.Path) -> Figure:
    """Returns the figure of the study of that name; `workdir` holds its runs."""
    figure = _FIGURES[study](scores, workdir)
    figure.suptitle(ablation.find_study(study).title, fontsize=10)
    return figure


def _position(scores, workdir):
    paper = ablation.find_study("position").paper
    cells = ablation.by_cell(scores, "few_shot")
    figure, (ours, theirs) = new_figure(2)
    places = range(len(cells))
    means, deviations = zip(*(_height(cells[cell]) for cell in cells), strict=True)
    ours.bar(places, means, yerr=deviations, capsize=3)
    ours.set_title("this run", fontsize=9)
    theirs.bar(places, [paper[cell] for cell in cells], color="tab:gray")
    theirs.set_title("paper: ViT-B/16 from JFT, 5-shot ImageNet", fontsize=9)
    for axis in (ours, theirs):
        axis.set_xticks(places, list(cells), rotation=45, ha="right", fontsize=8)
        heights = [bar.get_height() for bar in axis.patches]
        axis.set(ylabel=_LABEL, ylim=(max(0, min(heights) - 5), max(heights) + 3))
    return figure


def _head(scores, workdir):
    figure, (axis,) = new_figure()
    colors = {cell: f"C{number}" for number, cell in enumerate(ablation.by_cell(scores, "top1"))}
    for score in scores:
        curve = ablation.learning_curve(ablation.run_of_cell(workdir, score.cell, score.seed))
        steps, accuracies = zip(*curve, strict=True)
        percent = [100 * accuracy for accuracy in accuracies]
        axis.plot(steps, percent, "o-", color=colors[score.cell], label=score.cell)
    axis.set(xlabel="step", ylabel="top-1 accuracy (%)")
    # The seeds of a cell share an entry.
    lines = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    axis.legend(lines.values(), lines, fontsize=8)
    return figure


def _shape(scores, workdir):
    cells, compute = ablation.by_cell(scores, "few_shot"), ablation.by_cell(scores, "gmacs")
    lines: dict[str, list] = {}
    for cell in cells:
        line, _, _ = cell.partition("_")
        if line != "base":
            lines.setdefault(line, ["base"] if "base" in cells else []).append(cell)
    figure, (axis,) = new_figure()
    base = compute.get("base", next(iter(compute.values()))).mean
    points = {
        line: [(compute[cell].mean / base, *_height(cells[cell])) for cell in members]
        for line, members in lines.items()
    }
    _plot_lines(axis, points, "compute relative to the base", _LABEL)
    return figure


def _axial(scores, workdir):
    cells = ablation.by_cell(scores, "few_shot")
    figure, axes = new_figure(2)
    for axis, field, label in (
        (axes[0], "exaflops", "compute of training (exaFLOPs)"),
        (axes[1], "images_per_second", "inference (images/s)"),
    ):
        places = ablation.by_cell(scores, field)
        points = {cell: [(places[cell].mean, *_height(cells[cell]))] for cell in cells}
        _plot_lines(axis, points, label, _LABEL)
    return figure


def _data_size(scores, workdir):
    figure, axes = new_figure(2)
    for axis, field, label in (
        (axes[0], "top1", "best top-1 on held-out images (%)"),
        (axes[1], "few_shot", _LABEL),
    ):
        cells, sizes = ablation.by_cell(scores, field), ablation.by_cell(scores, "images")
        lines: dict[str, list] = {}
        for cell in cells:
            model, _, _ = cell.rpartition("_")
            lines.setdefault(model, []).append((sizes[cell].mean, *_height(cells[cell])))
        _plot_lines(axis, lines, "training images", label)
    return figure


def _height(accuracy):
    """Returns (mean, length of the error bar) in percent."""
    mean, deviation = accuracy.percent
    return mean, deviation or 0.0


def _plot_lines(axis, lines, xlabel, ylabel):
    """Joins the points (x, y, deviation) of each line in order of x, on a logarithmic axis."""
    for label, points in lines.items():
        x, y, deviation = zip(*sorted(points), strict=True)
        axis.errorbar(x, y, yerr=deviation, fmt="o-", markersize=4, capsize=2, label=label)
    axis.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
    axis.legend(fontsize=8)


_FIGURES = {
    "position": _position,
    "head": _head,
    "shape": _shape,
    "axial": _axial,
    "data_size": _data_size,
}
