"""The figures of the ablation studies."""

import pathlib
from collections.abc import Sequence

from matplotlib.figure import Figure

from keras_vit.training.configs.ablation import STUDIES
from keras_vit.training.protocols import ablation
from keras_vit.training.reporting.figures import new_figure

_SHOTS = f"{ablation.SHOTS}-shot linear accuracy (%)"
# {study: [(field on the x axis, its label, field on the y axis, its label)]}
_PANELS = {
    "shape": [("gmacs", "GMACs per image", "few_shot", _SHOTS)],
    "axial": [
        ("exaflops", "compute of training (exaFLOPs)", "few_shot", _SHOTS),
        ("images_per_second", "inference (images/s)", "few_shot", _SHOTS),
    ],
    "data_size": [
        ("images", "training images", "top1", "best top-1 on held-out images (%)"),
        ("images", "training images", "few_shot", _SHOTS),
    ],
}
# {study: function of a cell that returns the line it lies on}
_LINE_OF = {
    "shape": lambda cell: cell.partition("_")[0],
    "axial": str,
    "data_size": lambda cell: cell.rpartition("_")[0],
}


def study_figure(study: str, scores: Sequence[ablation.Score], workdir: pathlib.Path) -> Figure:
    """Returns the figure of the study of that name; `workdir` holds its runs."""
    if study == "position":
        figure = _position(scores)
    elif study == "head":
        figure = _head(scores, workdir)
    else:
        figure = _lines(study, scores)
    figure.suptitle(STUDIES[study].title, fontsize=10)
    return figure


def _position(scores):
    """Draws our accuracies beside the paper's."""
    paper = STUDIES["position"].paper
    cells = ablation.by_cell(scores, "few_shot")
    figure, (ours, theirs) = new_figure(2)
    places = range(len(cells))
    means, deviations = zip(*map(_height, cells.values()), strict=True)
    ours.bar(places, means, yerr=deviations, capsize=3)
    ours.set_title("this run", fontsize=9)
    theirs.bar(places, [paper[cell] for cell in cells], color="tab:gray")
    theirs.set_title("paper: ViT-B/16 from JFT, 5-shot ImageNet", fontsize=9)
    for axis in (ours, theirs):
        axis.set_xticks(places, list(cells), rotation=45, ha="right", fontsize=8)
        heights = [bar.get_height() for bar in axis.patches]
        axis.set(ylabel=_SHOTS, ylim=(max(0, min(heights) - 5), max(heights) + 3))
    return figure


def _head(scores, workdir):
    """Draws the accuracy of every run over its steps; the seeds of a cell share a color."""
    figure, (axis,) = new_figure()
    colors: dict[str, str] = {}
    for score in scores:
        label = None if score.cell in colors else score.cell
        color = colors.setdefault(score.cell, f"C{len(colors)}")
        curve = ablation.learning_curve(ablation.run_of_cell(workdir, score.cell, score.seed))
        steps, accuracies = zip(*curve, strict=True)
        axis.plot(steps, [100 * each for each in accuracies], "o-", color=color, label=label)
    axis.set(xlabel="step", ylabel="top-1 accuracy (%)")
    axis.legend(fontsize=8)
    return figure


def _lines(study, scores):
    """Joins the cells of each line in order of x, on a logarithmic axis."""
    panels = _PANELS[study]
    figure, axes = new_figure(len(panels))
    for axis, (x, xlabel, y, ylabel) in zip(axes, panels, strict=True):
        places, heights = ablation.by_cell(scores, x), ablation.by_cell(scores, y)
        points = {cell: (places[cell].mean, *_height(heights[cell])) for cell in heights}
        lines: dict[str, list] = {}
        for cell in points:
            if cell != "base":
                lines.setdefault(_LINE_OF[study](cell), []).append(points[cell])
        if "base" in points:
            lines = {line: [*others, points["base"]] for line, others in lines.items()}
        for line, joined in lines.items():
            style = {"fmt": "o-", "markersize": 4, "capsize": 2, "label": line}
            at, values, deviations = zip(*sorted(joined), strict=True)
            axis.errorbar(at, values, yerr=deviations, **style)
        axis.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
        axis.legend(fontsize=8)
    return figure


def _height(accuracy):
    """Returns (mean, length of the error bar) in percent."""
    mean, deviation = accuracy.percent
    return mean, deviation or 0.0
