"""Figures of matplotlib without a display, and their files."""

import os

import numpy as np
from matplotlib.figure import Figure

from training.io.atomic import atomic_file


def new_figure(panels: int = 1, width: float = 4.6) -> tuple[Figure, np.ndarray]:
    """Returns a figure and its (panels,) axes side by side, each `width` inches wide."""
    figure = Figure(figsize=(width * panels, 3.5), dpi=150, layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def write_png(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure as a PNG file, in one step."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png")
