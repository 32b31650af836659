"""The paper's figures, drawn from the results of the other functions of `analysis`.

Each function returns a `matplotlib.figure.Figure`, and needs neither pyplot nor a display.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.type_hints import Tensor

if TYPE_CHECKING:  # Only who draws loads matplotlib.
    from matplotlib.figure import Figure

    from keras_vit.analysis.reconstruction import Reconstruction

# Colors of red, green, blue and of the map over the image, as in `export/web/page/page.css`.
_LUMINANCE = (0.2126, 0.7152, 0.0722)
_OPACITY = 0.6


def _grid_figure(rows, columns, cell, frames=True):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(cell * columns, cell * rows), dpi=120, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        if not frames:
            axis.set_axis_off()
    return figure, axes


def over_images(maps: Tensor, stride: int, size: tuple[int, int], blur: float = 0) -> np.ndarray:
    """Returns maps of patches at the size of their images, (batch, height, width) in [0, 1].

    Args:
        maps: (batch, rows, columns) in [0, 1], from `attention_rollout` or `class_maps`.
        stride: pixels of a patch, `model.token_stride`.
        size: (height, width) of the images; pixels beyond the last patch get 0.
        blur: as of `highlight`.
    """
    height, width = size
    full = np.zeros((len(maps), height, width), "float32")
    for whole, image_map in zip(full, maps, strict=True):
        part = _enlarged(image_map, stride, blur)[:height, :width]
        whole[: part.shape[0], : part.shape[1]] = part
    return full


def _enlarged(image_map, stride, blur):
    from PIL import Image, ImageFilter

    small = Image.fromarray(np.asarray(image_map, "float32"))
    size = stride * small.width, stride * small.height
    mask = np.asarray(small.resize(size, Image.Resampling.LANCZOS)).clip(0)
    if blur:
        # Pillow blurs bytes only.
        gray = Image.fromarray(np.uint8(255 * mask / (mask.max() or 1)))
        mask = np.asarray(gray.filter(ImageFilter.GaussianBlur(blur)), "float32")
        mask = mask - mask.min() if mask.min() < mask.max() else mask
    return mask / (mask.max() or 1)


def _rgb(image):
    return np.broadcast_to(image, (*np.shape(image)[:2], 3))


def highlight(images: Tensor, maps: Tensor, stride: int, blur: float = 0) -> np.ndarray:
    """Colors images by the rollout, as exported web pages do.

    Args:
        images: (batch, height, width, 3 or 1) in [-1, 1].
        maps: (batch, rows, columns) in [0, 1], from `attention_rollout`.
        stride: pixels of a patch, `model.token_stride`.
        blur: pixels, the radius of a Gaussian that smooths the enlarged map, after
            which its minimum becomes 0; the original's figures use the patch size.

    Returns:
        (batch, height, width, 3) float32 array in [0, 1]: the image in gray under its map in
        viridis, enlarged by Lanczos resampling and divided by its maximum.
    """
    from matplotlib import colormaps

    results = []
    for image, mask in zip(images, over_images(maps, stride, images.shape[1:3], blur), strict=True):
        gray = (_rgb(image) + 1) / 2 @ _LUMINANCE
        colors = colormaps["viridis"](mask)[..., :3]
        results.append((1 - _OPACITY) * gray[..., None] + _OPACITY * colors)
    return np.stack(results).astype("float32").clip(0, 1)


def rollout_figure(
    images: Tensor, maps: Tensor, stride: int, blur: float = 0, titles: Sequence[str] | None = None
) -> "Figure":
    """Draws each image beside itself colored by what the output attends to (Figures 6 and 13).

    Arguments as for `highlight`; `titles` are strings, one an image.
    """
    pairs_per_row = min(4, len(images))
    rows = -(-len(images) // pairs_per_row)
    figure, axes = _grid_figure(rows, 2 * pairs_per_row, cell=1.2, frames=False)
    highlighted = highlight(images, maps, stride, blur)
    for index, (image, attended) in enumerate(zip(images, highlighted, strict=True)):
        row, column = divmod(index, pairs_per_row)
        left, right = axes[row, 2 * column : 2 * column + 2]
        left.imshow((_rgb(image) + 1) / 2)
        right.imshow(attended)
        if titles is not None:
            left.set_title(titles[index], fontsize=7)
    return figure


def attention_distance_figure(distances: np.ndarray) -> "Figure":
    """Draws one dot for every head over the depth of its layer (Figures 7 right and 10).

    Args:
        distances: (layers, heads) pixels, from `attention_distance`.
    """
    from matplotlib.figure import Figure

    layers, heads = distances.shape
    figure = Figure(figsize=(4, 3.2), dpi=150, layout="constrained")
    axis = figure.subplots()
    for head in range(heads):
        axis.scatter(np.arange(layers), distances[:, head], s=14, label=f"Head {head}")
    axis.set_xlabel("Network depth (layer)")
    axis.set_ylabel("Mean attention distance (pixels)")
    axis.set_ylim(bottom=0)
    axis.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axis.legend(fontsize=5, ncols=1 + heads // 9)
    return figure


def filters_figure(filters: np.ndarray, columns: int = 7) -> "Figure":
    """Draws the principal filters as a grid of small images (Figure 7 left).

    Args:
        filters: (components, height, width, 3) in [0, 1], from `embedding_filters`.
        columns: int, images in a row.
    """
    rows = -(-len(filters) // columns)
    figure, axes = _grid_figure(rows, columns, cell=0.7, frames=False)
    for axis, image in zip(axes.flat, filters, strict=False):
        axis.imshow(image, interpolation="nearest")
    return figure


def position_similarity_figure(similarity: np.ndarray) -> "Figure":
    """Draws the tile of similarities of every patch (Figure 7 center).

    Args:
        similarity: (rows, columns, rows, columns) in [-1, 1], from `position_similarity`.
    """
    rows, columns = similarity.shape[:2]
    figure, axes = _grid_figure(rows, columns, cell=0.55)
    for row in range(rows):
        for column in range(columns):
            tile = axes[row, column].imshow(similarity[row, column], vmin=-1, vmax=1)
        axes[row, 0].set_ylabel(row + 1, fontsize=8)
    for column in range(columns):
        axes[-1, column].set_xlabel(column + 1, fontsize=8)
    figure.supxlabel("Input patch column", fontsize=9)
    figure.supylabel("Input patch row", fontsize=9)
    bar = figure.colorbar(tile, ax=axes, shrink=0.8, ticks=[-1, 0, 1])
    bar.set_label("Cosine similarity", fontsize=8)
    return figure


def reconstruction_figure(images: Tensor, reconstruction: "Reconstruction") -> "Figure":
    """Draws images, corrupted images and predicted images, one column an image.

    Args:
        images: (batch, height, width, 3) in [-1, 1].
        reconstruction: a `keras_vit.analysis.Reconstruction` of them.
    """
    figure, axes = _grid_figure(3, len(images), cell=1.0)
    shown = (images, reconstruction.hidden, reconstruction.predicted)
    for row, (label, row_images) in enumerate(
        zip(("image", "corrupted", "predicted"), shown, strict=True)
    ):
        axes[row, 0].set_ylabel(label, fontsize=8)
        for axis, image in zip(axes[row], row_images, strict=True):
            axis.imshow((np.asarray(image) + 1) / 2)
    return figure
