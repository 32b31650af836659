"""The pages of a run and of predictions: files of HTML that load nothing from elsewhere."""

import base64
import html
import io
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.training.evaluators.classification import per_class
from keras_vit.training.prediction.predictor import Prediction

PHOTO_SIDE = 224
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

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1d2733; --paper: #fff; --line: #d5dbe3;
  --soft: #5a6675; --shade: #f4f6f9; --wrong: #b83232; --bar: #2b6cb0; --link: #2b6cb0; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #dde3ea; --paper: #14181f;
  --line: #3a4452; --soft: #9aa7b6; --shade: #1f2630; --wrong: #f08a80; --link: #7db4ea; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
a {{ color: var(--link); }}
h1 {{ margin-bottom: .2rem; overflow-wrap: anywhere; }}
h2 {{ margin-top: 2.2rem; border-bottom: 1px solid var(--line); }}
p.note, figcaption {{ color: var(--soft); }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 1rem; }}
.tile {{ border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; }}
.tile b {{ display: block; font-size: 1.5rem; }}
.curves {{ margin: 0; overflow-x: auto; }}
.curves svg {{ width: 100%; min-width: 48rem; height: auto; }}
.curves svg text {{ fill: currentColor; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
.scroll {{ overflow-x: auto; }}
td, th {{ padding: .25rem .5rem; text-align: right; border: 1px solid var(--line); }}
th {{ font-weight: 600; background: var(--shade); }}
th[scope=col]:first-child, th[scope=col]:last-child {{ text-align: left; }}
th[scope=row], td.text {{ text-align: left; max-width: 16rem; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }}
.matrix th[scope=col] {{ writing-mode: vertical-rl; transform: rotate(180deg); text-align: left;
  max-height: 11rem; overflow: hidden; white-space: nowrap; }}
.examples {{ display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }}
.photos {{ grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); }}
.examples figure {{ margin: 0; }}
.examples .pair {{ display: flex; gap: .25rem; }}
.examples img {{ width: 50%; image-rendering: pixelated; border-radius: .25rem; }}
.photos img {{ image-rendering: auto; }}
figcaption {{ overflow-wrap: anywhere; }}
.wrong figcaption {{ color: var(--wrong); font-weight: 600; }}
.bars td {{ border: 0; padding: .1rem .4rem; color: var(--ink); white-space: nowrap; }}
.bars td.text {{ width: 100%; max-width: 9rem;
  background: linear-gradient(var(--bar), var(--bar)) left bottom / var(--share) 3px no-repeat; }}
summary {{ color: var(--link); cursor: pointer; }}
pre {{ background: var(--shade); padding: 1rem; overflow-x: auto; border-radius: .5rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="note">{subtitle}</p>
{body}
</body>
</html>
"""


def html_page(title: str, subtitle: str, body: str) -> str:
    """Returns a page.

    Args:
        title, subtitle: plain text.
        body: HTML.
    """
    return _PAGE.format(title=html.escape(title), subtitle=html.escape(subtitle), body=body)


def image_pair(image: np.ndarray, attention: np.ndarray | None, label: str, side: int = 96) -> str:
    """Returns the HTML of an image, and beside it what attention covers of it.

    Args:
        image: (height, width, 3) in [0, 255].
        attention: (rows, columns) in [0, 1], or None for the image alone.
        label: plain text that says what it shows.
        side: height in pixels that it is stored in.
    """
    pictures = {"image": image}
    if attention is not None:
        pictures["attention"] = _overlay(image, attention)
    shown = "".join(
        f'<img alt="{kind} of {html.escape(label)}" src="{_png(pixels, side)}">'
        for kind, pixels in pictures.items()
    )
    return f'<div class="pair">{shown}</div>'


def _png(pixels, side):
    from PIL import Image

    image = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
    width = max(1, round(side * image.width / image.height))
    smooth = image.height >= side
    image = image.resize((width, side), Image.Resampling["BILINEAR" if smooth else "NEAREST"])
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _overlay(image, attention):
    from PIL import Image

    height, width, _ = image.shape
    mask = Image.fromarray(np.float32(attention)).resize((width, height), Image.Resampling.BILINEAR)
    return image * np.clip(np.asarray(mask), 0, 1)[..., None]


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
    results = "".join(
        f'<div class="tile"><b>{html.escape(text)}</b>{html.escape(label)}</div>'
        for label, text in tiles.items()
    )
    links = "".join(
        f'<li><a href="{urllib.parse.quote(path)}">{html.escape(path)}</a>, '
        f"{html.escape(what)}</li>"
        for path, what in (files or {}).items()
    )
    sections = [
        f'<div class="tiles">{results}</div>',
        '<h2 id="curves">Training</h2>'
        f'<figure class="curves">{_curves(series)}'
        "<figcaption>Each point is one row of <code>metrics.csv</code>.</figcaption></figure>",
    ]
    if confusion is not None and len(confusion):
        sections += [_classes(confusion, names), _confusion(confusion, names)]
    if examples:
        sections.append(_examples(examples, names))
    if links:
        sections.append(f'<h2 id="files">Files</h2><ul>{links}</ul>')
    sections.append(
        '<h2 id="config">Configuration</h2><details><summary>config.json</summary>'
        f"<pre>{html.escape(config)}</pre></details>"
    )
    return html_page(title, subtitle, "\n".join(sections))


def _curves(series):
    import matplotlib

    from keras_vit.training.reporting.figures import new_figure

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
        texts = [html.escape(str(cell)) for cell in cells]
        shown = "".join(
            f'<td class="text" title="{text}">{text}</td>'
            if position in text_columns
            else f"<td>{text}</td>"
            for position, text in enumerate(texts, start=1)
        )
        lines.append(f"<tr>{_head(name, 'row')}{shown}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _head(name, scope):
    text = html.escape(name)
    return f'<th scope="{scope}" title="{text}">{text}</th>'


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
    return (
        '<h2 id="examples">Examples and where the model looks</h2>'
        '<p class="note">Beside each image: the image under its attention rollout, which follows '
        "the class token's attention down through all layers. Mistakes come first.</p>"
        f'<div class="examples">{"".join(figures)}</div>'
    )


def predictions_html(model: str, predictions: Sequence[Prediction]) -> str:
    """Returns a page of HTML that loads nothing from elsewhere.

    Args:
        model: its name.
        predictions: shown in this order.
    """
    figures = "".join(map(_prediction, predictions))
    note = "Each photo is shown as the model saw it."
    if any(each.attention is not None for each in predictions):
        note += (
            " Beside it: the photo under its attention rollout, which follows attention down "
            "through all layers."
        )
    body = f'<p class="note">{note}</p><div class="examples photos">{figures}</div>'
    return html_page("Predictions", f"{len(predictions)} photos by {model}", body)


def _prediction(prediction):
    file = pathlib.Path(prediction.id).name
    name = html.escape(file)
    rows = "".join(
        f'<tr><td class="text" style="--share:{100 * probability:.1f}%" '
        f'title="{html.escape(label)}">{html.escape(label)}</td>'
        f"<td>{100 * probability:.1f} %</td></tr>"
        for label, probability in prediction.ranked
    )
    # Smaller ones are enlarged by the browser, which smooths them.
    side = min(PHOTO_SIDE, prediction.image.shape[0])
    pair = image_pair(prediction.image, prediction.attention, file, side)
    return (
        f'<figure>{pair}<figcaption>{name}</figcaption><table class="bars">{rows}</table></figure>'
    )
