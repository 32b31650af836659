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
from typing import TypeAlias

import numpy as np

from keras_vit.photos.prepare_photos import read_photo

from ..io.paths import any_path
from ..io.printed_table import Table
from ..prediction.predictor import NONE, Prediction
from ..tasks import COUNT, METRICS
from ..tasks.classification.evaluation import per_class
from .doubtful_labels import MANY, doubt_table

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

# A matrix of more classes is not read but searched: then the most frequent confusions stand here.
MATRIX_CLASSES = 40
WORST_CLASSES = 50
CONFUSIONS = 20

_SVG = {"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 10}
_MARK = '<b class="mark">trained on</b>'

_PAGE = pathlib.Path(__file__).parent / "page" / "page.html"


def _html_page(title, subtitle, body):
    # A path is broken at its slashes.
    broken = html.escape(subtitle).replace("/", "/<wbr>")
    page = string.Template(_PAGE.read_text(encoding="utf-8"))
    return page.substitute(title=html.escape(title), subtitle=broken, body=body)


def _section(key, title, body, note=""):
    """Returns a part of a page; texts are HTML."""
    note = f'<p class="note">{note}</p>' if note else ""
    return f'<h2 id="{key}">{title}</h2>{note}{body}'


def _figure(image, maps, label, caption, side=96, kind="", below=""):
    """Returns an image, in gray beside it under the colors of each of its maps, and a caption."""
    import matplotlib

    image = np.broadcast_to(image, (*image.shape[:2], 3))  # also of gray images
    pictures = {"image": image}
    for name, values in maps.items():
        colors = 255 * matplotlib.colormaps["viridis"](values)[..., :3]
        pictures[name] = 0.4 * image.mean(axis=-1, keepdims=True) + 0.6 * colors
    shown = "".join(
        f'<img alt="{name} of {html.escape(label)}" src="{_png(pixels, side)}">'
        for name, pixels in pictures.items()
    )
    return (
        f'<figure class="{kind}"><div class="pair">{shown}</div>'
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


# An image, (height, width, 3) in [0, 255], its label and prediction, numbers of classes, and its
# maps as of `Prediction`.
Example: TypeAlias = tuple[np.ndarray, int, int, Mapping[str, np.ndarray]]


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
    tables: Sequence[tuple[Table, str]] = (),
    worst: Sequence[tuple[np.ndarray, str]] = (),
    charts: tuple[str, str, Sequence[tuple[str, np.ndarray, np.ndarray, str, str]]] | None = None,
    count: int = 0,
    files: Sequence[str] = (),
    doubts: Mapping[str, np.ndarray] | None = None,
    classes: Sequence[str] = (),
) -> str:
    """Returns the page of a run. Texts are plain, not HTML.

    Args:
        title, subtitle, config: texts.
        series: {column: [(step, value), ...]} of `metrics.csv`.
        tiles: {label: text}, the results shown first.
        confusion: (classes, classes) counts, row the label, of the classes of these `names`.
        examples: shown in this order.
        tables: each with a note.
        worst: images, (height, width, 3) in [0, 255], of the largest errors, and what is said.
        charts: title, note, and of each chart its name, two numbers of its points, (points,), and
            their names.
        count: of the images in `tables`.
        files: to link to, paths relative to the page.
        doubts: of `kept_doubts`, with the names of all classes.
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
    sections = [f'<div class="tiles">{results}</div>', _section("curves", "Training", curves, note)]
    if confusion is not None and len(confusion):
        sections += [_classes(confusion, names), _confusion(confusion, names)]
    if examples:
        sections.append(_examples(examples, names))
    for table, said in tables:
        rows = _table(table.columns, table.rows)
        sections.append(_section(table.title.lower(), table.title, rows, said))
    if charts:
        heading, said, drawn = charts
        shown = f'<div class="curves">{"".join(_scatter(*each) for each in drawn)}</div>'
        sections.append(_section("charts", heading, shown, said))
    if worst:
        # Several pictures side by side.
        kind = "wide" if worst[0][0].shape[1] > 2 * len(worst[0][0]) else ""
        shown = "".join(
            _figure(image, {}, text, html.escape(text), kind=kind) for image, text in worst
        )
        note, grid = f"The largest errors among {count:,} images first.", "photos" * bool(kind)
        shown = f'<div class="examples {grid}">{shown}</div>'
        sections.append(_section("worst", "Worst", shown, note))
    if doubts and classes:
        sections.append(_doubts(doubts, classes))
    if links:
        sections.append(_section("files", "Files", f"<ul>{links}</ul>"))
    details = f"<details><summary>config.json</summary><pre>{html.escape(config)}</pre></details>"
    sections.append(_section("config", "Configuration", details))
    return _html_page(title, subtitle, "\n".join(sections))


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


def _scatter(name, first, second, *axes):
    import matplotlib

    from .matplotlib_figures import new_figure

    with matplotlib.rc_context(_SVG):
        figure, (axis,) = new_figure(width=4)
        ends = [np.nanmin([first, second]), np.nanmax([first, second])]
        axis.plot(ends, ends, color=TRAIN_COLOR, linewidth=1)
        axis.plot(first, second, ".", color=EVAL_COLOR, markersize=3 if len(first) > 15 else 8)
        axis.set(title=name, xlabel=axes[0], ylabel=axes[1])
        return _svg(figure)


def _chart(title, lines):
    """Returns the drawing of lines, ([(step, value), …], label, color)."""
    import matplotlib

    from .matplotlib_figures import new_figure

    with matplotlib.rc_context(_SVG):
        figure, (axis,) = new_figure(width=4)
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
        return _svg(figure)


def _svg(figure):
    text = io.StringIO()
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
        _section(
            table.title.split()[0], table.title.capitalize(), _table(table.columns, table.rows)
        )
        for table in (configs, results)
    ]
    sections.append(_section("curves", "Curves", f'<div class="curves">{"".join(curves)}</div>'))
    return _html_page("Comparison", ", ".join(runs), "".join(sections))


def _classes(confusion, names):
    """Precision and recall of each class, the worst recall first."""
    table = per_class(confusion, names)
    recall = np.diag(confusion) / np.maximum(confusion.sum(axis=1), 1)
    seen = np.flatnonzero(confusion.sum(axis=1))
    worst = seen[np.argsort(recall[seen], kind="stable")][:WORST_CLASSES]
    note = f"Worst recall first: {len(worst)} of {len(seen):,} classes with images."
    shown = _table(table.columns, [table.rows[i] for i in worst])
    return _section("classes", "Classes", shown, note)


def _table(columns, rows):
    """Returns a table whose first column names its rows; its last one is text."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    lines = []
    for name, *numbers, text in rows:
        cells = "".join(f"<td>{html.escape(str(number))}</td>" for number in numbers)
        cells += f'<td class="text">{html.escape(text)}</td>'
        lines.append(f"<tr>{_head(name, 'row')}{cells}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _head(name, scope):
    text = html.escape(name)
    broken = text.replace("_", "_<wbr>").replace(".", ".<wbr>")
    return f'<th scope="{scope}" title="{text}">{broken}</th>'


def _confusion(confusion, names):
    if len(confusion) > MATRIX_CLASSES:
        return _frequent_confusions(confusion, names)
    head = "".join(_head(name, "col") for name in names)
    rows = []
    for name, counts in zip(names, confusion, strict=True):
        total = max(int(counts.sum()), 1)
        cells = "".join(
            f'<td style="background:rgba(43,108,176,{0.85 * count / total:.3f});'
            f'color:{"#fff" if count / total > 0.5 else "inherit"}">{int(count) or ""}</td>'
            for count in counts
        )
        rows.append(f"<tr>{_head(name, 'row')}{cells}</tr>")
    matrix = f'<table class="matrix"><tr><th></th>{head}</tr>{"".join(rows)}</table>'
    shown, note = f'<div class="scroll">{matrix}</div>', "Row: the label. Column: the prediction."
    return _section("confusion", "Confusion matrix", shown, note)


def _frequent_confusions(confusion, names):
    mistakes = confusion * (1 - np.eye(len(confusion), dtype=confusion.dtype))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:CONFUSIONS]
    pairs = zip(*np.unravel_index(order, mistakes.shape), strict=True)
    rows = [
        (names[label], mistakes[label, prediction], names[prediction])
        for label, prediction in pairs
        if mistakes[label, prediction]
    ]
    table = _table(("label", "images", "taken for"), rows)
    return _section("confusion", "Most frequent confusions", table)


def _examples(examples, names):
    figures = []
    for image, true, predicted, maps in examples:
        right = true == predicted
        label = names[true] if right else f"{names[true]}, taken for {names[predicted]}"
        kind = "right" if right else "wrong"
        figures.append(_figure(image, maps, names[true], html.escape(label), kind=kind))
    note = f"Mistakes come first.{_attention_note(each[-1] for each in examples)}"
    shown = f'<div class="examples">{"".join(figures)}</div>'
    return _section("examples", "Examples and where the model looks", shown, note)


def _doubts(doubts, classes):
    """Photos that may lie in a wrong folder."""
    table = doubt_table(doubts, classes)
    figures = []
    for image, (photo, folder, found, share, trained) in zip(
        doubts["doubt_images"], table.rows, strict=False
    ):
        caption = f"{html.escape(photo)}: in {html.escape(folder)}, looks like "
        caption += f"{html.escape(found)} ({share})" + f" {_MARK}" * (trained == "yes")
        figures.append(_figure(image, {}, photo, caption))
    unreadable, photos = [*doubts["unreadable"]], len(doubts["scores"])
    note = (
        f"{len(table.rows)} of {photos:,} photos look like another class than their folder's, by "
        f"features of the first {int(doubts['step']):,} steps and without the photo's own label; "
        "the most doubted first. The file may be wrong, or the photo an odd one. All of them: "
        "<code>keras-vit predict RUN --mistakes --csv</code>, RUN being the folder of this page."
    )
    if len(table.rows) > MANY * photos:
        note += " They are too many to be mistakes: the model tells these classes apart too badly."
    if unreadable:
        named = html.escape(", ".join(unreadable[:5])) + (", …" if unreadable[5:] else "")
        note += f" {len(unreadable)} could not be read: {named}."
    shown = f'<div class="examples">{"".join(figures)}</div>'
    return _section("labels", "Labels to check", shown, note)


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


def neighbors_html(
    model: str, neighbors: Mapping[str, Sequence[tuple[str, float]]], side: int = 96
) -> str:
    """Returns the page of the most similar photos by the model of that name.

    `neighbors` are {file: [(file, cosine)]}, the nearest first; photos are `side` pixels high.
    """
    parts = []
    for number, (photo, found) in enumerate(neighbors.items()):
        shown = [(photo, "this photo"), *((file, f"{cosine:.3f}") for file, cosine in found)]
        figures = []
        for file, text in shown:
            with any_path(file).open("rb") as stream:
                image = read_photo(stream)
            caption = f"{html.escape(pathlib.PurePath(file).name)}: {text}"
            figures.append(_figure(image, {}, file, caption, side))
        grid = f'<div class="examples">{"".join(figures)}</div>'
        parts.append(_section(f"photo-{number}", html.escape(photo), grid))
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
    caption = html.escape(file) + f" {_MARK}" * trained_on
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
    return _figure(prediction.image, prediction.maps, file, caption, side, below=bars)
