"""Figures of matplotlib as files, and the pictures of section 4.5 for a model and images."""

import os
import pathlib

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_vit import analysis
from keras_vit.layers.position_embeddings_2d import POSITION_EMBEDDINGS
from keras_vit.models.image_model import encoder_of

from ..io.atomic import atomic_file, write_text
from ..io.image_listing import spread
from ..io.printed_table import Table


def new_figure(panels: int = 1, width: float = 4.6) -> tuple[Figure, np.ndarray]:
    """Returns a figure and its (panels,) axes side by side, each `width` inches wide."""
    figure = Figure(figsize=(width * panels, 3.5), dpi=150, layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def write_png(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure as a PNG file, in one step."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png")


def write_analysis(
    model: keras.Model,
    images: np.ndarray | None,
    output: pathlib.Path,
    *,
    shown: int = 16,
    blur: float = 0.0,
) -> tuple[list[str], dict[str, str]]:
    """Writes every picture that there is of a model, as PNG beside CSV.

    Args:
        model: a model of `keras_vit`.
        images: (images, height, width, 3) in [-1, 1], or None for what needs none.
        output: folder; each picture NAME.png comes with its numbers, NAME.csv.
        shown: images in the pictures that show images, evenly apart; numbers are of all images.
        blur: radius in pixels of the Gaussian that smooths rollouts.

    Returns:
        (names of the files that were written, {picture left out: reason}).
    """
    encoder = encoder_of(model)
    pictures = {
        "filters": lambda: _filters(encoder),
        "position_similarity": lambda: _position_similarity(encoder),
        "rollout": lambda: _rollout(encoder, images, shown, blur),
        "attention_distance": lambda: _attention_distance(encoder, images),
    }
    if encoder is not model:
        pictures["reconstruction"] = lambda: _reconstruction(model, images, shown)
    written, left_out = [], {}
    for name, draw in pictures.items():
        if reason := _why_not(name, encoder, images):
            left_out[name] = reason
            continue
        figure, table = draw()
        write_png(figure, output / f"{name}.png")
        write_text(output / f"{name}.csv", table.csv())
        written += [f"{name}.png", f"{name}.csv"]
    return written, left_out


def _why_not(name, model, images):
    """Returns why a picture cannot be drawn, or None."""
    if name == "filters":
        return None
    if not hasattr(model, "grid_size"):
        return "a ResNet has neither attention nor position embeddings"
    if name == "position_similarity":
        if model.arguments["position_embedding"] not in POSITION_EMBEDDINGS:
            return "the model adds no position embedding to its tokens"
        return None
    if images is None:
        return "it needs --images or --dataset"
    if name != "reconstruction" and model.arguments["attention"] == "axial":
        return "axial attention has one map for every row and column, not one for the image"
    return None


def _table(columns, values):
    """Returns a row for each entry of an array: its indices and its value."""
    return Table(columns, [(*i, f"{value:.6g}") for i, value in np.ndenumerate(values)])


def _filters(model):
    principal = analysis.embedding_filters(model)
    rows = [
        (component, *(f"{value:.6g}" for value in (share, *image.ravel())))
        for component, (image, share) in enumerate(zip(*principal, strict=True))
    ]
    _, height, width, _ = principal.filters.shape
    pixels = [f"{y}_{x}_{c}" for y in range(height) for x in range(width) for c in "rgb"]
    table = Table(("component", "explained", *pixels), rows)
    return analysis.figures.filters_figure(principal.filters), table


def _position_similarity(model):
    similarity = analysis.position_similarity(model)
    table = _table(("row", "column", "other_row", "other_column", "similarity"), similarity)
    return analysis.figures.position_similarity_figure(similarity), table


def _rollout(model, images, shown, blur):
    maps = analysis.attention_rollout(model, images)
    chosen = spread(range(len(images)), shown)
    drawn = images[chosen], maps[chosen], model.token_stride
    figure = analysis.figures.rollout_figure(*drawn, blur=blur)
    return figure, _table(("image", "row", "column", "attention"), maps)


def _attention_distance(model, images):
    distances = analysis.attention_distance(model, images)
    figure = analysis.figures.attention_distance_figure(distances)
    return figure, _table(("layer", "head", "pixels"), distances)


def _reconstruction(masked, images, shown):
    images = images[spread(range(len(images)), shown)]
    found = analysis.reconstruct(masked, images)
    rows = [
        (image, position, f"{found.losses[image, place]:.6g}")
        for (image, place), position in np.ndenumerate(found.positions)
    ]
    figure = analysis.figures.reconstruction_figure(images, found)
    return figure, Table(("image", "patch", "loss"), rows)
