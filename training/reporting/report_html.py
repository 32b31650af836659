"""The page of a run: one file of HTML that loads nothing from elsewhere."""

import html
import io
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from training.evaluators.accuracy_metrics import per_class
from training.reporting.html_page import html_page, image_pair

# Blue for what was trained on, orange for what was held out: apart for every kind of color vision.
TRAIN_COLOR, EVAL_COLOR = "#2b6cb0", "#c05621"
# Title of a panel: (column of metrics.csv, label, color) of its lines.
PANELS = {
    "loss": (("loss", "training", TRAIN_COLOR), ("eval_loss", "evaluation", EVAL_COLOR)),
    "accuracy": (("eval_top1", "evaluation", EVAL_COLOR),),
    "learning rate": (("learning_rate", "", TRAIN_COLOR),),
}

# A matrix of more classes is not read but searched: then the most frequent confusions stand here.
MATRIX_CLASSES = 40
WORST_CLASSES = 50
CONFUSIONS = 20


class Example(NamedTuple):
    """An image of the evaluation split.

    Attributes:
        image: (height, width, 3) in [0, 255].
        label, prediction: numbers of classes.
        attention: (rows, columns) in [0, 1], or None.
    """

    image: np.ndarray
    label: int
    prediction: int
    attention: np.ndarray | None = None


def report_html(
    *,
    title: str,
    subtitle: str,
    series: Mapping[str, Sequence[tuple[int, float]]],
    tiles: Mapping[str, str],
    config: str,
    confusion: np.ndarray | None = None,
    names: Sequence[str] = (),
    examples: Sequence[Example] = (),
    files: Mapping[str, str] | None = None,
) -> str:
    """Returns the page.

    Args:
        title, subtitle: plain text.
        series: {column: [(step, value), ...]} of `metrics.csv`.
        tiles: {label: text}, the results shown first.
        config: plain text of the configuration.
        confusion: (classes, classes) counts, row the label, or None.
        names: of the classes.
        examples: shown in this order.
        files: {path relative to the page: what it is} to link to.
    """
    sections = [
        f'<div class="tiles">{_tiles(tiles)}</div>',
        '<h2 id="curves">Training</h2>'
        f'<figure class="curves">{_curves(series)}'
        "<figcaption>Each point is one row of <code>metrics.csv</code>.</figcaption></figure>",
        _classes(confusion, names),
        _confusion(confusion, names),
        _examples(examples, names),
        _files(files),
        '<h2 id="config">Configuration</h2><details><summary>config.json</summary>'
        f"<pre>{html.escape(config)}</pre></details>",
    ]
    return html_page(title, subtitle, "\n".join(filter(None, sections)))


def _tiles(tiles):
    return "".join(
        f'<div class="tile"><b>{html.escape(text)}</b>{html.escape(label)}</div>'
        for label, text in tiles.items()
    )


def _curves(series):
    import matplotlib

    from training.reporting.png_figure import new_figure

    panels = {
        title: present
        for title, lines in PANELS.items()
        if (present := [line for line in lines if line[0] in series])
    }
    if not panels:
        return "<p>No metrics were written.</p>"
    settings = {"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 10}
    with matplotlib.rc_context(settings):
        figure, axes = new_figure(len(panels), width=4)
        for axis, (title, lines) in zip(axes, panels.items(), strict=True):
            for name, label, color in lines:
                steps, values = zip(*series[name], strict=True)
                marker = "o" if len(steps) < 30 else None
                axis.plot(steps, values, color, label=label, marker=marker, markersize=3)
            axis.set_title(title)
            axis.set_xlabel("step")
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
            if len(lines) > 1:
                axis.legend(frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = text.getvalue()
    # Axes and numbers are as light or dark as the text around them.
    return svg[svg.index("<svg") :].replace("#000000", "currentColor")


def _classes(confusion, names):
    """Precision and recall of each class, the worst recall first."""
    if confusion is None or not len(confusion):
        return ""
    table = per_class(confusion, names)
    recall = np.diag(confusion) / np.maximum(confusion.sum(axis=1), 1)
    seen = np.flatnonzero(confusion.sum(axis=1))
    worst = seen[np.argsort(recall[seen], kind="stable")]
    shown = [table.rows[i] for i in worst[:WORST_CLASSES]]
    note = "Worst recall first."
    if len(confusion) > len(shown):
        note += (
            f" {len(shown)} of {len(confusion):,} classes, {len(seen):,} of which have images here."
        )
    return (
        f'<h2 id="classes">Classes</h2><p class="note">{note}</p>'
        f'<div class="scroll">{_table(table.columns, shown)}</div>'
    )


def _table(columns, rows, text_columns=(4,)):
    """Returns a table whose first column names its rows."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    lines = []
    for name, *cells in rows:
        shown = "".join(
            f'<td class="text" title="{html.escape(str(cell))}">{html.escape(str(cell))}</td>'
            if position in text_columns
            else f"<td>{html.escape(str(cell))}</td>"
            for position, cell in enumerate(cells, start=1)
        )
        lines.append(f"<tr>{_row_head(name)}{shown}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _row_head(name):
    return f'<th scope="row" title="{html.escape(name)}">{html.escape(name)}</th>'


def _confusion(confusion, names):
    if confusion is None:
        return ""
    if len(confusion) > MATRIX_CLASSES:
        return _frequent_confusions(confusion, names)
    head = "".join(
        f'<th scope="col" title="{html.escape(name)}">{html.escape(name)}</th>' for name in names
    )
    rows = []
    for name, counts in zip(names, confusion, strict=True):
        total = max(int(counts.sum()), 1)
        cells = "".join(
            f'<td style="background:rgba(43,108,176,{0.85 * count / total:.3f});'
            f'color:{"#fff" if count / total > 0.5 else "inherit"}">{int(count) or ""}</td>'
            for count in counts
        )
        rows.append(f"<tr>{_row_head(name)}{cells}</tr>")
    return (
        '<h2 id="confusion">Confusion matrix</h2><p class="note">Row: the label. Column: the '
        f'prediction.</p><div class="scroll"><table class="matrix"><tr><th></th>{head}</tr>'
        f"{''.join(rows)}</table></div>"
    )


def _frequent_confusions(confusion, names):
    mistakes = confusion * (1 - np.eye(len(confusion), dtype=confusion.dtype))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:CONFUSIONS]
    pairs = zip(*np.unravel_index(order, mistakes.shape), strict=True)
    rows = [
        (names[label], names[prediction], int(mistakes[label, prediction]))
        for label, prediction in pairs
        if mistakes[label, prediction]
    ]
    if not rows:
        return ""
    table = _table(("label", "taken for", "images"), rows, text_columns=(1,))
    return f'<h2 id="confusion">Most frequent confusions</h2><div class="scroll">{table}</div>'


def _examples(examples, names):
    figures = []
    for image, true, predicted, attention in examples:
        right = true == predicted
        label = names[true] if right else f"{names[true]}, taken for {names[predicted]}"
        figures.append(
            f'<figure class="{"right" if right else "wrong"}">'
            f"{image_pair(image, attention, names[true])}"
            f"<figcaption>{html.escape(label)}</figcaption></figure>"
        )
    if not figures:
        return ""
    return (
        '<h2 id="examples">Examples and where the model looks</h2>'
        '<p class="note">Beside each image: the image under its attention rollout, which follows '
        "the class token's attention down through all layers. Mistakes come first.</p>"
        f'<div class="examples">{"".join(figures)}</div>'
    )


def _files(files):
    if not files:
        return ""
    lines = "".join(
        f'<li><a href="{urllib.parse.quote(path)}">{html.escape(path)}</a>, '
        f"{html.escape(what)}</li>"
        for path, what in files.items()
    )
    return f'<h2 id="files">Files</h2><ul>{lines}</ul>'
