"""What our pages share: one file of HTML that loads nothing from elsewhere, light and dark."""

import base64
import html
import io

import numpy as np

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
