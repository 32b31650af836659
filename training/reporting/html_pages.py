"""The pages of a run and of predictions: files of HTML that load nothing from elsewhere."""

import base64
import html
import io
import itertools
import os
import pathlib
import string
import urllib.parse
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from keras_vit.photos.prepare_photos import read_photo

from ..io.paths import any_path
from ..io.printed_table import Table
from ..prediction.predictor import NONE, Prediction
from ..tasks import COUNT, METRICS
from ..tasks.base import Picture, Section

PHOTO_SIDE = 224
# Blue for what was trained on, orange for what was held out: apart for every kind of color vision.
TRAIN_COLOR, EVAL_COLOR = "#2b6cb0", "#c05621"
# Title of a panel: (column of metrics.csv, label, color) of its lines.
PANELS = {"loss": [("loss", "training", TRAIN_COLOR)]}
for _metric in filter(lambda each: each.panel, METRICS.values()):
    PANELS.setdefault(_metric.panel, []).append((_metric.column, "evaluation", EVAL_COLOR))
_SHARES = {each.panel for each in METRICS.values() if each.is_share}
PANELS["learning rate"] = [("learning_rate", "", TRAIN_COLOR)]
# Beside them in metrics.csv.
NOT_DRAWN = {COUNT, "gradient_norm", "images_per_second", *(m.column for m in METRICS.values())}

_SVG = {"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 10}
_MARK = '<b class="mark">trained on</b>'

_PAGE = pathlib.Path(__file__).parent / "page" / "page.html"


def _html_page(title, subtitle, body):
    # A path is broken at its slashes.
    broken = html.escape(subtitle).replace("/", "/<wbr>")
    page = string.Template(_PAGE.read_text(encoding="utf-8"))
    return page.substitute(title=html.escape(title), subtitle=broken, body=body)


def _part(key, title, body, note=""):
    """Returns a part of a page; texts are HTML."""
    note = f'<p class="note">{note}</p>' if note else ""
    return f'<h2 id="{key}">{title}</h2>{note}{body}'


def _section(section):
    table, pictures, body = section.table, section.pictures, ""
    if table:
        body += (_matrix if section.is_matrix else _table)(table)
    if section.charts:
        body += f'<div class="curves">{"".join(map(_scatter, section.charts))}</div>'
    if pictures:
        # Several side by side, which need a broad column.
        is_wide = pictures[0].image.shape[1] > 2 * len(pictures[0].image)
        shown = "".join(_figure(each, is_wide=is_wide) for each in pictures)
        body += f'<div class="examples{" photos" * is_wide}">{shown}</div>'
    note = section.note + _attention_note(each.maps for each in pictures)
    return _part(section.key, html.escape(section.title), body, note)


def _figure(picture, side=96, below="", is_wide=False):
    """Returns an image, in gray beside it under the colors of each of its maps, and a caption."""
    import matplotlib

    image = np.broadcast_to(picture.image, (*picture.image.shape[:2], 3))  # also of gray images
    pictures = {"image": image}
    for name, values in picture.maps.items():
        colors = 255 * matplotlib.colormaps["viridis"](values)[..., :3]
        pictures[name] = 0.4 * image.mean(axis=-1, keepdims=True) + 0.6 * colors
    shown = "".join(
        f'<img alt="{name} of {html.escape(picture.label)}" src="{_png(pixels, side)}">'
        for name, pixels in pictures.items()
    )
    caption = html.escape(picture.caption) + f" {_MARK}" * picture.is_trained
    return (
        f'<figure class="{picture.kind}{" wide" * is_wide}"><div class="pair">{shown}</div>'
        f"<figcaption>{caption}</figcaption>{below}</figure>"
    )


def _png(pixels, side):
    from PIL import Image

    image = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
    width = max(1, round(side * image.width / image.height))
    smooth = image.height >= side
    image = image.resize((width, side), Image.Resampling["BILINEAR" if smooth else "NEAREST"])
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def report_html(
    *,
    title: str,
    subtitle: str,
    series: Mapping[str, Sequence[tuple[int, float]]],
    tiles: Mapping[str, str],
    config: str,
    sections: Sequence[Section] = (),
    files: Sequence[str] = (),
) -> str:
    """Returns the page of a run. Texts are plain, not HTML.

    Args:
        title, subtitle, config: texts.
        series: {column: [(step, value), ...]} of `metrics.csv`.
        tiles: {label: text}, the results shown first.
        sections: of the run's task, and others.
        files: to link to, paths relative to the page.
    """
    results = "".join(
        f'<div class="tile"><b>{html.escape(text)}</b>{html.escape(label)}</div>'
        for label, text in tiles.items()
    )
    links = "".join(
        f'<li><a href="{urllib.parse.quote(path)}">{html.escape(path)}</a></li>' for path in files
    )
    note = "Each point is one row of <code>metrics.csv</code>."
    curves = f'<div class="curves">{_curves(series)}</div>'
    parts = [f'<div class="tiles">{results}</div>', _part("curves", "Training", curves, note)]
    parts += map(_section, sections)
    if links:
        parts.append(_part("files", "Files", f"<ul>{links}</ul>"))
    details = f"<details><summary>config.json</summary><pre>{html.escape(config)}</pre></details>"
    parts.append(_part("config", "Configuration", details))
    return _html_page(title, subtitle, "\n".join(parts))


def _panels(columns):
    """Returns `PANELS`, and one for each of a run's columns that only own evaluators explain."""
    explained = {name for lines in PANELS.values() for name, *_ in lines} | NOT_DRAWN
    return PANELS | {name: [(name, "", EVAL_COLOR)] for name in columns if name not in explained}


def _curves(series):
    drawn = []
    for title, lines in _panels(series).items():
        present = [(series[name], *line) for name, *line in lines if name in series]
        drawn += [_chart(title, present)] if present else []
    return "".join(drawn) or "<p>No metrics were written.</p>"


def _scatter(chart):
    def draw(axis):
        ends, points = [np.nanmin(chart.numbers), np.nanmax(chart.numbers)], len(chart.numbers[0])
        axis.plot(ends, ends, color=TRAIN_COLOR, linewidth=1)
        axis.plot(*chart.numbers, ".", color=EVAL_COLOR, markersize=3 if points > 15 else 8)
        axis.set(title=chart.title, xlabel=chart.names[0], ylabel=chart.names[1])

    return _svg(draw)


def _chart(title, lines):
    """Returns the drawing of lines, ([(step, value), …], label, color)."""

    def draw(axis):
        for points, label, color in lines:
            steps, values = zip(*points, strict=True)
            marker = "o" if len(steps) < 30 else None
            axis.plot(steps, values, color=color, label=label, marker=marker, markersize=3)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        if title.partition(" of ")[0] in _SHARES:
            low, high = axis.get_ylim()
            axis.set_ylim(max(low, 0), min(high, 1.005))
        if len(lines) > 1:
            axis.legend(frameon=False)

    return _svg(draw)


def _svg(draw):
    """Returns what `draw` makes on an axis."""
    import matplotlib

    from .matplotlib_figures import new_figure

    text = io.StringIO()
    with matplotlib.rc_context(_SVG):
        figure, (axis,) = new_figure(width=4)
        draw(axis)
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = text.getvalue()
    # Axes and numbers are as light or dark as the text around them.
    return svg[svg.index("<svg") :].replace("#000000", "currentColor")


def comparison_html(
    runs: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], configs: Table, results: Table
) -> str:
    """Returns the page of several runs: differences of their configs, results, curves.

    `runs` are {name: series of `report_html`}, whose names stand in the tables.
    """
    curves = []
    for title, columns in _panels(dict.fromkeys(itertools.chain(*runs.values()))).items():
        for column, label, _ in columns:
            each = [(series[column], name) for name, series in runs.items() if series.get(column)]
            lines = [(*line, f"C{number}") for number, line in enumerate(each)]
            curves += [_chart(" of ".join(filter(None, (title, label))), lines)] if lines else []
    sections = [
        Section(table.title.split()[0], table.title.capitalize(), table=table)
        for table in (configs, results)
    ]
    drawn = _part("curves", "Curves", f'<div class="curves">{"".join(curves)}</div>')
    return _html_page("Comparison", ", ".join(runs), "".join([*map(_section, sections), drawn]))


def _table(table):
    """Returns a table whose first column names its rows; its last one is text."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.columns)
    lines = []
    for name, *numbers, text in table.rows:
        cells = "".join(f"<td>{html.escape(str(number))}</td>" for number in numbers)
        cells += f'<td class="text">{html.escape(text)}</td>'
        lines.append(f"<tr>{_head(name, 'row')}{cells}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _head(name, scope):
    text = html.escape(name)
    broken = text.replace("_", "_<wbr>").replace(".", ".<wbr>")
    return f'<th scope="{scope}" title="{text}">{broken}</th>'


def _matrix(table):
    """Returns a table of counts, colored by their part of a row."""
    head = "".join(_head(name, "col") for name in table.columns[1:])
    rows = []
    for name, *counts in table.rows:
        total = max(sum(counts), 1)
        cells = "".join(
            f'<td style="background:rgba(43,108,176,{0.85 * count / total:.3f});'
            f'color:{"#fff" if count / total > 0.5 else "inherit"}">{count or ""}</td>'
            for count in counts
        )
        rows.append(f"<tr>{_head(name, 'row')}{cells}</tr>")
    matrix = f'<table class="matrix"><tr><th></th>{head}</tr>{"".join(rows)}</table>'
    return f'<div class="scroll">{matrix}</div>'


def _attention_note(maps):
    named = set().union(*maps)
    texts = {
        "attention": "its attention rollout, which follows attention down through all layers",
        "evidence": "what speaks for the class that the model takes it for, by the gradients of "
        "that class",
    }
    shown = "; ".join(text for name, text in texts.items() if name in named)
    legend = '<span class="legend">Least <i></i> most.</span>'
    return f" Beside each image, in color: {shown}. {legend}" if shown else ""


def predictions_html(
    model: str,
    predictions: Sequence[Prediction],
    trained_on: Collection[str] = (),
    title: str = "Predictions",
    note: str = "Each photo is shown as the model saw it.",
) -> str:
    """Returns the page of predictions, in their order, by the model of that name.

    `trained_on` are ids of the photos that the model was trained on, which are marked. `title` and
    `note` say what is shown in place of predictions.
    """
    folders = {pathlib.Path(each.id).absolute().parent for each in predictions}
    shared = os.path.commonpath(folders) if folders else ""
    figures = "".join(_prediction(each, each.id in trained_on, shared) for each in predictions)
    note += _attention_note(each.maps for each in predictions)
    if trained_on:
        note += f" {_MARK}: the model learned this photo; the answer says little about new ones."
    body = f'<p class="note">{note}</p><div class="examples photos">{figures}</div>'
    return _html_page(title, f"{len(predictions)} photos by {model}", body)


def neighbors_html(model: str, neighbors: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """Returns the page of the most similar photos by the model of that name.

    `neighbors` are {file: [(file, cosine)]}, the nearest first; photos are 96 pixels high.
    """
    parts = []
    for number, (photo, found) in enumerate(neighbors.items()):
        pictures = []
        for file, text in [(photo, "this photo"), *((each, f"{cos:.3f}") for each, cos in found)]:
            with any_path(file).open("rb") as stream:
                image = read_photo(stream)
            pictures.append(Picture(image, f"{pathlib.PurePath(file).name}: {text}", file))
        parts.append(_section(Section(f"photo-{number}", photo, pictures=pictures)))
    note = "Beside each photo those most like it, with the cosine of their representations."
    body = f'<p class="note">{note}</p>{"".join(parts)}'
    return _html_page("Similar photos", f"{len(neighbors)} photos by {model}", body)


def _percent(probability):
    """Returns a percentage that is 0 or 100 of nothing else."""
    if 0.0005 <= probability < 0.9995:
        return f"{100 * probability:.1f} %"
    return "&lt; 0.1 %" if probability < 0.5 else "&gt; 99.9 %"


def _prediction(prediction, trained_on, shared):
    """Returns the figure of a photo, named by its path below the folder that all share."""
    file = pathlib.Path(prediction.id).absolute().relative_to(shared).as_posix()
    numbers = "values" in (prediction.answer or {})
    rows = "".join(
        f'<tr><td class="text" style="--share:{0 if numbers else 100 * probability:.1f}%" '
        f'title="{html.escape(label)}">{html.escape(label)}</td>'
        f"<td>{f'{probability:.5g}' if numbers else _percent(probability)}</td></tr>"
        for label, probability in prediction.ranked
    )
    rows = rows or f'<tr><td class="text">{NONE}</td></tr>'
    # Smaller ones are enlarged by the browser, which smooths them.
    side = min(PHOTO_SIDE, prediction.image.shape[0])
    bars = f'<table class="bars">{rows}</table>'
    picture = Picture(prediction.image, file, file, prediction.maps, is_trained=trained_on)
    return _figure(picture, side, bars)
