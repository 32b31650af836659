"""The page of predictions: each photo, where the model looked, and its most probable classes."""

import html
import pathlib
from collections.abc import Sequence

from training.predictions import Prediction
from training.reporting.html_page import html_page, image_pair

_SIDE = 224


def predictions_html(model: str, predictions: Sequence[Prediction]) -> str:
    """Returns a page of HTML that loads nothing from elsewhere.

    Args:
        model: its name.
        predictions: shown in this order.
    """
    figures = "".join(map(_figure, predictions))
    note = "Each photo is shown as the model saw it."
    if any(each.attention is not None for each in predictions):
        note += (
            " Beside it: the photo under its attention rollout, which follows attention down "
            "through all layers."
        )
    body = f'<p class="note">{note}</p><div class="examples photos">{figures}</div>'
    return html_page("Predictions", f"{len(predictions)} photos by {model}", body)


def _figure(prediction):
    file = pathlib.Path(prediction.name).name
    name = html.escape(file)
    rows = "".join(
        f'<tr><td class="text" style="--share:{100 * probability:.1f}%" '
        f'title="{html.escape(label)}">{html.escape(label)}</td>'
        f"<td>{100 * probability:.1f} %</td></tr>"
        for label, probability in prediction.classes
    )
    # Smaller ones are enlarged by the browser, which smooths them.
    side = min(_SIDE, prediction.image.shape[0])
    pair = image_pair(prediction.image, prediction.attention, file, side)
    return (
        f'<figure>{pair}<figcaption>{name}</figcaption><table class="bars">{rows}</table></figure>'
    )
