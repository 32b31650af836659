"""Writing models in the layouts in which the originals are published."""

import os
import zipfile
from pathlib import Path

import keras
import numpy as np

from keras_vit.checkpoints.npz_file_layouts import BiTLayout, Layout
from keras_vit.checkpoints.weights_of_model import weights_of
from keras_vit.files.hidden_folder import hidden_folder, writing
from keras_vit.models.inner_layers import require_unquantized
from keras_vit.models.vision_transformer import VisionTransformer


def save_checkpoint(
    model: keras.Model, path: str | os.PathLike, layout: Layout | BiTLayout | None = None
) -> None:
    """Writes a model's weights as the original's .npz file, or BiT's.

    A model that was loaded from such a file is written back as it was read, bit for bit, with the
    same names, shapes and values. The file appears only when it is complete.

    Args:
        model: a `VisionTransformer` or `ResNetV2`.
        path: where to write; exactly this name. Folders around it are made.
        layout: a `keras_vit.checkpoints.Layout` or `BiTLayout`; by default that of
            the file the model was loaded from, or else the original's.

    Raises:
        ValueError: if a weight is NaN or infinite, the model was quantized, or the layout has no
            place for the class token's position; nothing is written.
        OSError: if the file cannot be written.
    """
    require_finite(model)
    require_unquantized(model)
    weights = weights_of(model)
    layout = layout or _layout_of(model)
    shared = getattr(model, "arguments", {}).get("position_placement") == "shared"
    if shared and not getattr(layout, "class_position", True):
        raise ValueError(
            "Expected a layout with class_position=True for a model whose blocks all add its "
            f"positions, as the class token cannot absorb its own. Received: {layout}"
        )
    grid = getattr(model, "grid_size", None)
    path = Path(path)
    with hidden_folder(path) as folder:
        temporary = folder / path.name
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for array in sorted(layout.file_arrays(weights), key=lambda array: array.name):
                value = np.ascontiguousarray(layout.pack(array, weights))
                member = zipfile.ZipInfo(f"{array.name}.npy")  # of a fixed date, as NumPy's
                with archive.open(member, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, value, allow_pickle=False)
            if grid is not None:
                # The layout has no array for this, and other readers ignore it.
                archive.comment = f"position grid {grid[0]}x{grid[1]}".encode()
        with writing(path):
            os.replace(temporary, path)


def _layout_of(model):
    read = getattr(model, "checkpoint_layout", None)
    if isinstance(read, (Layout, BiTLayout)):
        return read
    if not isinstance(model, VisionTransformer):
        return BiTLayout()
    # Attention pooling exists in big_vision alone.
    pooled = model.arguments["classifier"] == "map"
    return Layout(renumbered=True, positions="pos_embedding") if pooled else Layout()


def require_finite(
    model: keras.Model, why: str = "its training diverged, or its file is damaged"
) -> None:
    """Raises ValueError if weights are NaN or infinite; it names the first of them, and `why`."""
    wrong = [
        weight.path
        for weight in model.weights
        if keras.backend.is_float_dtype(weight.dtype)
        and not bool(keras.ops.all(keras.ops.isfinite(weight)))
    ]
    if wrong:
        raise ValueError(
            f"Expected finite weights. Received: {model.name}, with NaN or infinite values in "
            f"{', '.join(wrong[:3])}{' and others' if wrong[3:] else ''}. Nothing was written: "
            f"{why}."
        )
