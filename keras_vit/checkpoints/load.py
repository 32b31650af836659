"""Strict loading of published checkpoints."""

import os
import warnings
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.checkpoints.array_files import open_source
from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.flexible import resize_positions
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.normalization import normalization_of
from keras_vit.checkpoints.patch_kernel import convert_patches
from keras_vit.checkpoints.published import find_checkpoint, published
from keras_vit.checkpoints.published_classifiers import published_classifier
from keras_vit.checkpoints.published_table import PERMISSIVE
from keras_vit.checkpoints.resize import grid_of_table, resize_grid, resize_line, resize_table
from keras_vit.checkpoints.stated_arguments import compare_stated_arguments
from keras_vit.checkpoints.variable_names import weights_of
from keras_vit.imagenet_classes import imagenet_classes

# What comes after the encoder.
_OPTIONAL = ("head", "pre_logits")
_HEADS = {"head/kernel", "resnet/head/conv2d/kernel"}


def load_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    skip: Sequence[str] = (),
    position_grid: tuple[int, int] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    flexible: bool = False,
) -> None:
    """Loads a published checkpoint into a model, all of it or nothing.

    Reads the .npz files of the original (both generations of names), of AugReg,
    of big_vision and of BiT, the safetensors of Hugging Face and of timm, and
    models saved with `model.save`. The format is recognized from the arrays'
    names. Position embeddings of another image size are resized, corners
    aligned, by `keras_vit.checkpoints.resize`.

    Args:
        model: a `VisionTransformer` or `ResNetV2`.
        path: the file, a directory that holds it, or a published name, which is
            downloaded: see `keras_vit.list_weights`.
        skip: names of arrays, or of the modules before them, that are left as
            they are: "head" for a head of another size, "pre_logits" to drop
            pre-training's hidden layer.
        position_grid: (rows, columns) of the file's position embeddings, needed
            only if they are not square and were not written here.
        mean: (r, g, b) in units of [0, 1], of a safetensors file: it was made for images
            (rgb - mean) / std. None: as timm's config.json or Hugging Face's
            preprocessor_config.json beside the file says. The model takes [-1, 1] as ever; the
            difference is folded into its patch embedding.
        std: (r, g, b), as `mean`.
        flexible: bool, whether a patch kernel of another size is resized, and positions with it,
            as FlexiViT does: see `keras_vit.checkpoints.flexible`.

    Raises:
        FileNotFoundError: if there is no such file, nor such a name.
        DownloadError: if a download fails.
        CheckpointError: if the file is damaged, if the normalization of a safetensors file is not
            known, or is given for another, if arrays are missing, left over
            or of another shape, if one holds a NaN or an infinity, or if a name
            in `skip` is no array's. The model is unchanged.

    Examples:
        >>> model = keras_vit.create_model("ViT-B/16", num_classes=10, image_size=384)
        >>> keras_vit.load_checkpoint(model, "ViT-B_16.npz", skip=("head", "pre_logits"))
    """
    source, layout, flexible = _open(model, path, position_grid, mean, std, flexible)
    _assign(model, source, layout, _as_names(skip), position_grid or source.grid, flexible, path)


def load_weights(model: keras.Model, path: str | os.PathLike) -> None:
    """Loads pre-trained weights for transfer: what comes after the encoder may differ.

    A head of another size, or none, leaves the model's head as initialized, and
    pre-training's hidden layer is dropped if the model has none. Everything else
    is as strict as in `load_checkpoint`, and raises the same errors.

    Args:
        model: a `VisionTransformer` or `ResNetV2`.
        path: a path, or a published name: "augreg/B_16", for example. A safetensors file needs
            its config.json or preprocessor_config.json beside it.
    """
    source, layout, flexible = _open(model, path)
    arrays = layout.file_arrays(weights_of(model))
    skip = []
    for part in _OPTIONAL:
        mine = [a for a in arrays if _is_skipped(_names_of(a), (part,), layout)]
        fits = mine and all(source.shapes.get(a.name) == tuple(a.shape) for a in mine)
        if not fits and (part == "head" or not mine):
            skip.append(part)
    _assign(model, source, layout, tuple(skip), source.grid, flexible, path)


def _open(model, path, position_grid=None, mean=None, std=None, flexible=False):
    """Returns (the file as one of a plain model of such images, its layout, `flexible`)."""
    row = published(path)
    source = open_source(find_checkpoint(path))
    if row:
        _tell_license(path, row)
        if mean is None and std is None:
            mean, std = row.mean, row.std
        flexible = flexible or row.flexible
    layout = _layout_of(source, position_grid)
    compare_stated_arguments(model, source, row)
    source = layout.folded(source)
    normalization = None
    if layout.is_torch:
        normalization = normalization_of(source, mean, std)
    elif mean is not None or std is not None:
        raise CheckpointError(
            f"`mean` and `std` are of safetensors files; {source.path} has the names of "
            f"{layout.title}, whose models take [-1, 1]. Leave them out. Nothing was loaded."
        )
    if layout.patch_embedding:
        source = convert_patches(source, layout, model, normalization, flexible)
    return source, layout, flexible


def _tell_license(name, row):
    if row.license not in PERMISSIVE:
        warnings.warn(
            f"The weights {name} are published under {row.license}, which does not allow every "
            "use. Read it before you build on them.",
            stacklevel=4,
        )


def _as_names(skip):
    if isinstance(skip, str):
        raise ValueError(f"`skip` must be a sequence of names, ({skip!r},). Received: {skip!r}")
    return tuple(skip)


def _layout_of(source, position_grid):
    for make in FORMATS:
        layout = make.detect(source.shapes, position_grid or source.grid)
        if layout is not None:
            return layout
    some = ", ".join(sorted(source.shapes)[:5]) or "none"
    raise CheckpointError(
        f"{source.path} is in no known format. Expected the arrays of "
        f"{', '.join(layout.title for layout in FORMATS)}. Its first arrays are: {some}"
    )


def _assign(model, source, layout, skip, grid, flexible, path):
    weights = weights_of(model)
    every = layout.file_arrays(weights)
    _check_skip(source, layout, skip, every)
    arrays = [array for array in every if not _is_skipped(_names_of(array), skip, layout)]
    resizers = _compare(model, source, layout, arrays, skip, grid, flexible)
    # Everything is read twice, to be checked before anything is assigned and yet never
    # to be in memory all at once.
    not_finite = [a.name for a in arrays if not np.isfinite(source.read(a.name)).all()]
    if not_finite:
        raise CheckpointError(
            f"{source.path} holds NaN or infinite values in: {', '.join(not_finite)}. "
            "Nothing was loaded."
        )
    for array in arrays:
        value = resizers.get(array.name, _unchanged)(source.read(array.name))
        for weight, part in zip(array.weights, array.unpack(value, *array.weights), strict=True):
            weight.variable.assign(np.reshape(part, weight.variable.shape))
    model.checkpoint_layout = layout
    loaded = {weight.name for array in arrays for weight in array.weights}
    classes = imagenet_classes() if _HEADS & loaded and published_classifier(path) else ()
    if classes and len(classes) == model.arguments["num_classes"]:
        model.class_names = classes


def _check_skip(source, layout, skip, arrays):
    """Refuses names that nothing has; a model or a file may lack what follows the encoder."""
    names = {*source.shapes, *(name for array in arrays for name in _names_of(array))}
    unknown = [
        part
        for part in skip
        if part not in _OPTIONAL and not any(_under(name, part, layout) for name in names)
    ]
    if unknown:
        modules = sorted({name.rpartition("/")[0] or name for name in source.shapes})
        raise CheckpointError(
            "Expected in `skip` names of arrays, or of the modules before them, that the model or "
            f"{source.path} has. Received: {', '.join(map(repr, unknown))}. The file's begin with: "
            f"{', '.join(modules[:5])}. Nothing was loaded."
        )


def _compare(model, source, layout, arrays, skip, grid, flexible):
    """Returns {name: function that resizes the array}; raises unless everything fits."""
    missing, mis_shaped, problems, resizers = [], [], [], {}
    for array in arrays:
        shape = source.shapes.get(array.name)
        if shape is None:
            missing.append(array.name)
        elif not source.is_numeric(array.name):
            mis_shaped.append(array.name)
            problems.append(f"{array.name} does not hold floating-point numbers")
        elif _can_resize(array, shape):
            try:
                resizers[array.name] = _resizer(array, shape, grid, flexible)
            except CheckpointError as error:
                mis_shaped.append(array.name)
                problems.append(f"{array.name}: {error}")
        elif tuple(shape) != tuple(array.shape):
            mis_shaped.append(array.name)
            problems.append(f"{array.name} is {tuple(shape)}, the model's is {tuple(array.shape)}")
    known = {array.name for array in arrays}
    left_over = [
        name
        for name in source.shapes
        if name not in known and layout.owns(name) and not _is_skipped((name,), skip, layout)
    ]
    if missing or left_over or mis_shaped:
        sections = [f"{source.path} does not fit the model {model.name!r}. Nothing was loaded."]
        if missing:
            sections.append(f"Missing from the file: {', '.join(sorted(missing))}")
        if left_over:
            described = (f"{name} {tuple(source.shapes[name])}" for name in sorted(left_over))
            sections.append(f"Left over in the file: {', '.join(described)}")
        if mis_shaped:
            sections.append(f"Of another shape: {'; '.join(problems)}")
        sections.append(_advice([*missing, *left_over, *mis_shaped], layout))
        raise CheckpointError("\n".join(sections), missing, left_over, mis_shaped)
    return resizers


def _advice(names, layout):
    parts = [p for p in _OPTIONAL if any(_under(n, p, layout) for n in names)]
    if parts and all(any(_under(n, p, layout) for p in parts) for n in names):
        spelled = ", ".join(f'"{part}"' for part in parts)
        return f"To leave those arrays out, pass skip=({spelled},)."
    flexible = " FlexiViT's patches are resized with flexible=True."
    return (
        "Build the model with the configuration of the checkpoint, or name in `skip` the arrays "
        "or modules to leave out."
        f"{flexible if layout.patch_embedding and layout.patch_arrays()[0] in names else ''}"
    )


def _names_of(array):
    return (array.name, *(weight.name for weight in array.weights))


def _is_skipped(names, skip, layout):
    return any(_under(name, part, layout) for name in names for part in skip)


def _under(name, part, layout):
    """Returns whether an array is the one called `part` or inside of that module."""
    return any(
        name == spelled or name.startswith((f"{spelled}/", f"{spelled}."))
        for spelled in layout.spellings(part)
    )


def _can_resize(array, shape):
    return (
        array.positions is not None
        and len(shape) == len(array.shape)
        and shape[-1] == array.shape[-1]
        and shape[0] > 0
        and (array.positions == "line" or shape[0] == 1)
    )


def _resizer(array, shape, grid, flexible):
    positions = array.positions
    if positions == "line":
        if tuple(shape) == tuple(array.shape):
            return _unchanged
        return lambda table: resize_line(table, array.shape[0])
    # Of the shapes alone: the table is as large as the file claims.
    grid_of_table(shape[1], positions.class_token, positions.grid_size, grid)
    resize = resize_positions if flexible else resize_grid
    return lambda table: resize_table(
        table, positions.class_token, positions.grid_size, grid, resize
    )


def _unchanged(array):
    return array
