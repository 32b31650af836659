"""The page of a run: one file of HTML that loads nothing from elsewhere."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# Blue for what was trained on, orange for what was held out: apart for every kind of color vision.
TRAIN_COLOR, EVAL_COLOR = "#2b6cb0", "#c05621"
# Title of a panel: (column of metrics.csv, label, color) of its lines.
PANELS = {
    "loss": (("loss", "training", TRAIN_COLOR), ("eval_loss", "evaluation", EVAL_COLOR)),
    "accuracy": (("eval_top1", "evaluation", EVAL_COLOR),),
    "learning rate": (("learning_rate", "", TRAIN_COLOR),),
}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light; --line: #d5dbe3; --soft: #5a6675; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1d2733; background: #fff;
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ margin-bottom: .2rem; }}
h2 {{ margin-top: 2.2rem; border-bottom: 1px solid var(--line); }}
p.note, figcaption {{ color: var(--soft); }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 1rem; }}
.tile {{ border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; }}
.tile b {{ display: block; font-size: 1.5rem; }}
.curves svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
.scroll {{ overflow-x: auto; }}
td, th {{ padding: .25rem .5rem; text-align: right; border: 1px solid var(--line); }}
th {{ font-weight: 600; background: #f4f6f9; }}
.examples {{ display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }}
.examples figure {{ margin: 0; }}
.examples .pair {{ display: flex; gap: .25rem; }}
.examples img {{ width: 50%; image-rendering: pixelated; border-radius: .25rem; }}
.wrong figcaption {{ color: #b83232; font-weight: 600; }}
pre {{ background: #f4f6f9; padding: 1rem; overflow-x: auto; border-radius: .5rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="note">{subtitle}</p>
<div class="tiles">{tiles}</div>
<h2 id="curves">Training</h2>
<figure class="curves">{curves}
<figcaption>Each point is one row of <code>metrics.csv</code>.</figcaption></figure>
{confusion}
{examples}
<h2 id="config">Configuration</h2>
<pre>{config}</pre>
</body>
</html>
"""


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
    """
    return PAGE.format(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        tiles="".join(
            f'<div class="tile"><b>{html.escape(text)}</b>{html.escape(label)}</div>'
            for label, text in tiles.items()
        ),
        curves=_curves(series),
        confusion=_confusion(confusion, names),
        examples=_examples(examples, names),
        config=html.escape(config),
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
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _confusion(confusion, names):
    if confusion is None or len(confusion) > 40:
        return ""
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in names)
    rows = []
    for name, counts in zip(names, confusion, strict=True):
        total = max(int(counts.sum()), 1)
        cells = "".join(
            f'<td style="background:rgba(43,108,176,{0.85 * count / total:.3f});'
            f'color:{"#fff" if count / total > 0.5 else "inherit"}">{int(count) or ""}</td>'
            for count in counts
        )
        rows.append(f"<tr><th scope='row'>{html.escape(name)}</th>{cells}</tr>")
    return (
        '<h2 id="confusion">Confusion matrix</h2><p class="note">Row: the label. Column: the '
        f'prediction.</p><div class="scroll"><table><tr><th></th>{head}</tr>{"".join(rows)}'
        "</table></div>"
    )


def _png(pixels, side=96):
    from PIL import Image

    image = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
    width = max(1, round(side * image.width / image.height))
    if image.height < side:
        image = image.resize((width, side), Image.Resampling.NEAREST)
    else:
        image = image.resize((width, side), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _overlay(image, attention):
    from PIL import Image

    height, width, _ = image.shape
    mask = Image.fromarray(np.float32(attention)).resize((width, height), Image.Resampling.BILINEAR)
    return image * np.clip(np.asarray(mask), 0, 1)[..., None]


def _examples(examples, names):
    figures = []
    for image, true, predicted, attention in examples:
        label = html.escape(names[true])
        right = true == predicted
        caption = label if right else f"{label}, taken for {html.escape(names[predicted])}"
        pictures = {"image": image}
        if attention is not None:
            pictures["attention"] = _overlay(image, attention)
        pair = "".join(
            f'<img alt="{kind} of {label}" src="{_png(pixels)}">'
            for kind, pixels in pictures.items()
        )
        figures.append(
            f'<figure class="{"right" if right else "wrong"}"><div class="pair">{pair}</div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    if not figures:
        return ""
    return (
        '<h2 id="examples">Examples and where the model looks</h2>'
        '<p class="note">Beside each image: the image under its attention rollout, which follows '
        "the class token's attention down through all layers. Mistakes come first.</p>"
        f'<div class="examples">{"".join(figures)}</div>'
    )
