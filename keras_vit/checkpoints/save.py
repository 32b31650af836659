"""Writes models in the layouts in which checkpoints are published."""

import os
from pathlib import Path

import keras

from keras_vit.checkpoints.array_files import write_npz, write_safetensors
from keras_vit.checkpoints.layout import FileLayout
from keras_vit.checkpoints.npz_layouts import BiTLayout, Layout
from keras_vit.checkpoints.torch_layouts import TORCH_LAYOUTS, TorchLayout
from keras_vit.checkpoints.weights_of_model import weights_of
from keras_vit.files.hidden_folder import hidden_folder, writing
from keras_vit.models.image_model import encoder_of
from keras_vit.models.inner_layers import require_unquantized
from keras_vit.models.segmenter import Segmenter
from keras_vit.models.vision_transformer import VisionTransformer


def save_checkpoint(
    model: keras.Model, path: str | os.PathLike, layout: FileLayout | None = None
) -> None:
    """Writes a model's weights in a published layout: the original's .npz, BiT's, or PyTorch's.

    A model that was loaded from an .npz file is written back as it was read, bit for bit, with the
    same names, shapes and values. The file appears only when it is complete.

    Args:
        model: a `VisionTransformer`, `ResNetV2` or, for a safetensors file, `Segmenter`.
        path: where to write; exactly this name. Folders around it are made.
        layout: a `keras_vit.checkpoints.Layout` or `BiTLayout`; by default that of the .npz file
            the model was loaded from, or else the original's. Or a row of
            `keras_vit.checkpoints.torch_layouts`, such as `TIMM`: a safetensors file of a model
            for images of mean 0.5 and std 0.5.

    Raises:
        ValueError: if a weight is NaN or infinite, the model was quantized, or the layout has no
            place for a weight, the class token's position or the channels; nothing is written.
        OSError: if the file cannot be written.
    """
    require_finite(model)
    require_unquantized(model)
    layout = layout or _layout_of(model)
    shared = getattr(model, "arguments", {}).get("position_placement") == "shared"
    if shared and not getattr(layout, "class_position", True):
        raise ValueError(
            "Expected a layout with class_position=True for a model whose blocks all add its "
            f"positions, as the class token cannot absorb its own. Received: {layout}"
        )
    path, is_torch = Path(path), isinstance(layout, TorchLayout)
    if path.suffix == ".safetensors" and not is_torch:
        raise ValueError(
            f"Expected the name of an .npz file for {layout.title}. Received: {path}. Pass layout="
            "keras_vit.checkpoints.torch_layouts.TIMM, or another row, for a safetensors file."
        )
    weights = weights_of(model)
    if is_torch:
        _require_as_written(model, layout, weights)
    own = getattr(encoder_of(model), "arguments", {})
    mlp, positions = own.get("mlp", "gelu"), own.get("position_embedding")
    rotary = [each == "rope_2d" for each in (positions, layout.arguments.get("position_embedding"))]
    if rotary[0] != rotary[1] or (not is_torch and mlp != "gelu"):
        raise ValueError(
            f"Expected a model that {layout.title} has a place for. Received: mlp={mlp!r}, "
            f"position_embedding={positions!r}. Use model.save, or another layout, such as "
            "keras_vit.checkpoints.torch_layouts.HUGGING_FACE_DINOV3 for rotary positions."
        )
    arrays = layout.packed(weights)
    with hidden_folder(path) as folder:
        temporary = folder / path.name
        if is_torch:
            write_safetensors(temporary, arrays)
        else:
            write_npz(temporary, arrays, getattr(encoder_of(model), "grid_size", None))
        with writing(path):
            os.replace(temporary, path)


def _require_as_written(model, layout, weights):
    """Raises ValueError unless a safetensors file is read back as the model that it is of."""
    arrays = layout.file_arrays(weights)
    shapes = {array.name: array.shape for array in arrays}
    if layout.layer_scale:
        shapes |= {array.scale: array.shape[:1] for array in arrays if array.scale}
    read = next((each for each in TORCH_LAYOUTS if each.detect(shapes)), layout)
    is_other = read.marks != layout.marks and layout.marks in [each.marks for each in TORCH_LAYOUTS]
    marks = ", ".join(sorted({*read.marks} - {*layout.marks}))
    wrong = f"with {marks} is of another kind" if is_other else ""
    if layout.class_entry and not any(weight.name == "cls" for weight in weights):
        wrong = "has a class token, and the model has none"
    elif encoder_of(model).arguments["in_channels"] != 3:
        wrong = "is of color images"
    if wrong:
        raise ValueError(
            f"Expected a model that {layout.title} has a place for: such a file {wrong}. "
            f"{layout.advice}"
        )


def _layout_of(model):
    read = getattr(model, "checkpoint_layout", None)
    if isinstance(read, (Layout, BiTLayout)):
        return read
    if not isinstance(model, VisionTransformer | Segmenter):
        return BiTLayout()
    # Attention pooling exists in big_vision alone.
    pooled = model.arguments.get("classifier") == "map"
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
