"""Strict loading of published checkpoints."""

import math
import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from keras_vit.checkpoints.array_files import ADAPTER, OF_HEAD, STATED, Contents, read_arrays
from keras_vit.checkpoints.conversion import convert_patches, resize_grid, resize_table
from keras_vit.checkpoints.download import find_checkpoint
from keras_vit.checkpoints.errors import CheckpointError, some
from keras_vit.checkpoints.layout import FileArray, FileLayout, Grid
from keras_vit.checkpoints.library_configs import (
    MODEL_TYPES,
    POOLING,
    arguments_of_model,
    stated_arguments,
    stated_normalization,
)
from keras_vit.checkpoints.npz_layouts import BiTLayout, Layout
from keras_vit.checkpoints.published_weights import PERMISSIVE, published, published_classifier
from keras_vit.checkpoints.torch_layouts import TORCH_LAYOUTS, TorchLayout
from keras_vit.checkpoints.weights_of_model import weights_of
from keras_vit.models.image_model import encoder_of
from keras_vit.models.inner_layers import require_unquantized
from keras_vit.models.segmenter import Segmenter
from keras_vit.photos.imagenet_classes import imagenet_classes

LAYOUTS = (Layout(), BiTLayout(), *TORCH_LAYOUTS)
_DISTILLED = (
    "is of a distilled model: its second class token takes part in attention. Build the model with "
    'classifier="distilled". Nothing was loaded.'
)
# Keys of a configuration that turn off the biases of these parts of every block.
_BIASES = {"qkv_bias": "query key value", "proj_bias": "out Dense_0 Dense_1"}
_BIASES |= {"query_bias": "query", "key_bias": "key", "value_bias": "value"}
# The parts after the encoder.
_OPTIONAL = ("head", "pre_logits")
_HEADS = {"head/kernel", "resnet/head/conv2d/kernel", "Decoder/classes", "Decoder/head/kernel"}


class _File(NamedTuple):
    """A file that is compared with a model, and how its positions are resized."""

    contents: Contents
    layout: FileLayout
    arrays: list[FileArray]
    grid: Grid | None
    interpolation: str
    # Published tables are square.
    is_published: bool

    def is_in(self, parts: Sequence[str], *names: str) -> bool:
        """Tells whether any array is one of the `parts`, or inside of a module of them."""
        return any(self.layout.is_in(part, *names) for part in parts)


def load_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    skip: Sequence[str] = (),
    position_grid: tuple[int, int] | None = None,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    flexible: bool = False,
) -> None:
    """Loads a published checkpoint into a model, all of it or nothing.

    Reads the .npz files of the original (both generations of names), of AugReg, of big_vision and
    of BiT, the safetensors of Hugging Face, timm and Segmenter, `tf_model.h5` of transformers 4's
    TensorFlow models, models saved with `model.save`. The format is recognized from the arrays'
    names. Position embeddings of another image size are resized, corners aligned, by
    `keras_vit.checkpoints.conversion`. A prefix that all names have is taken off. With a head
    come the class names and the activation that a `.keras` file or a config.json states.

    Args:
        model: a `VisionTransformer`, `ResNetV2` or `Segmenter`; a classifier's file goes to the
            `encoder` of a `Segmenter`.
        path: the file, a directory that holds it, or a published name, which is
            downloaded: see `keras_vit.list_weights`.
        skip: names of arrays, or of the modules before them, that are left as they are: "head" for
            a head of another size, "pre_logits" to drop pre-training's hidden layer.
        position_grid: (rows, columns) of the file's position embeddings, needed
            only if the file does not state it and it is neither square nor the model's.
        mean: (r, g, b) in units of [0, 1], of a safetensors file: it was made for images
            (rgb - mean) / std. None: as timm's config.json or Hugging Face's
            preprocessor_config.json beside the file says. The model still takes [-1, 1]; loading
            folds the difference into its patch embedding. One number is that of all colors.
        std: as `mean`.
        flexible: bool, whether a patch kernel of another size is resized, and positions with it,
            as FlexiViT does: `keras_vit.checkpoints.conversion.resize_kernel`.

    Raises:
        FileNotFoundError: if there is no such file, nor such a name.
        DownloadError: if a download fails.
        CheckpointError: if the file is damaged, or of another kind, such as a pickle or an
            adapter, if the normalization of a safetensors file is not known, or is given for
            another, if arrays are missing, left over or of another shape, if one holds a NaN or an
            infinity, or if a name in `skip` is no array's. The model is unchanged.
        ValueError: if the model, or that of the file, was quantized.

    Warns:
        UserWarning: if the file, or the configuration beside it, asks for another GELU, epsilon,
            pooling or place of positions than the model has, or a safetensors file states no
            activation and the model has not the usual GELU of its format; if the head of a `.keras`
            file replaces the model's class names by its own; if the weights' license does not allow
            every use: `model.license` keeps it.

    Examples:
        >>> model = keras_vit.create_model("ViT-B/16", num_classes=10, image_size=384)
        >>> keras_vit.load_checkpoint(model, "ViT-B_16.npz", skip=("head", "pre_logits"))
    """
    pair = np.array((1, 1) if position_grid is None else position_grid)
    if pair.shape != (2,) or pair.dtype.kind not in "iu" or (pair <= 0).any():
        raise ValueError(
            f"Expected position_grid=(rows, columns), integers above 0. Received: {position_grid!r}"
        )
    file = _open(model, path, position_grid, mean, std, flexible)
    if isinstance(skip, str):
        raise ValueError(f"`skip` must be a sequence of names, ({skip!r},). Received: {skip!r}")
    _assign(model, file, tuple(skip), path)


def load_weights(model: keras.Model, path: str | os.PathLike | Contents) -> None:
    """Loads pre-trained weights for transfer: what comes after the encoder may differ.

    A head of another size, or none, leaves the model's head as initialized, and
    pre-training's hidden layer is dropped if the model has none. Everything else
    is as strict as in `load_checkpoint`, and raises the same errors.

    Args:
        model: a `VisionTransformer` or `ResNetV2`.
        path: a path, or a published name: "augreg/B_16", for example. A safetensors file needs
            its config.json or preprocessor_config.json beside it. Or the contents, read already.
    """
    file = _open(model, path)
    skip, shapes = [], file.contents.shapes
    for part in _OPTIONAL:
        mine = [array for array in file.arrays if file.layout.is_in(part, *array.names)]
        fits = mine and all(shapes.get(a.name) == tuple(a.shape) for a in mine)
        if not fits and (part == "head" or not mine):
            skip.append(part)
    _assign(model, file, tuple(skip), file.contents.path if isinstance(path, Contents) else path)


def _open(model, path, position_grid=None, mean=None, std=None, flexible=False):
    contents = path if isinstance(path, Contents) else read_arrays(find_checkpoint(path))
    path = contents.path if isinstance(path, Contents) else path
    row, is_published = published(path), not Path(path).exists()
    if row:
        if mean is None and std is None:
            mean, std = row.mean, row.std
        flexible = flexible or row.flexible
    grid = position_grid or contents.grid
    layout = layout_of(contents, grid)
    if _classifier_of(encoder_of(model)) != "distilled":
        _refuse(contents, "dist_token|distillation_|head_dist", _DISTILLED)
    license = row.license if row else contents.own.get("license") or layout.license
    license = None if license in PERMISSIVE else license
    contents.own = {**contents.own, "license": license}
    if license:
        warnings.warn(
            f"The weights {path} are published under {license}, or derive from such weights. It "
            "does not allow every use. Read it before you build on them.",
            stacklevel=3,
        )
    require_unquantized(model)
    weights, model = weights_of(model), encoder_of(model)
    stated = stated_arguments(contents.config)
    _compare_stated_arguments(model, contents, row, layout, stated)
    normalization = None
    if isinstance(layout, TorchLayout):
        normalization = stated_normalization(contents.path, contents.config, mean, std)
    elif mean is not None or std is not None:
        raise CheckpointError(
            f"`mean` and `std` are of safetensors files; {contents.path} has the names of "
            f"{layout.title}, whose models take [-1, 1]. Leave them out. Nothing was loaded."
        )
    if normalization is not None:
        contents.own = {**contents.own, **layout.arguments_of(normalization)}
    interpolation = "antialiased" if flexible else layout.interpolation
    arrays = layout.file_arrays(weights)
    pool = {**layout.arguments, **contents.config, **stated}.get("global_pool")
    if pool == "avg" and layout.class_entry and _classifier_of(model) == "token_gap":
        _widen_head(contents, arrays)
    file = _File(contents, layout, arrays, grid, interpolation, is_published)
    _convert_patches(file, model, normalization)
    off = {part for key in _BIASES if stated.get(key) is False for part in _BIASES[key].split()}
    for part in {*off, *layout.optional_biases}:
        biases = [a for a in arrays if re.fullmatch(rf"Transformer/.*/{part}/bias", a.names[1])]
        is_needed = stated.get(f"{part}_bias") or contents.arrays.keys() & {a.name for a in biases}
        for array in () if is_needed and part not in off else biases:
            contents.arrays.setdefault(array.name, np.zeros(array.shape, np.float32))
    return file


def _classifier_of(model):
    return getattr(model, "arguments", {}).get("classifier")


def _refuse(contents, marks, why):
    """Refuses a file with arrays of such names."""
    if refused := [name for name in contents.arrays if re.search(marks, name)]:
        raise CheckpointError(f"{contents.path} {why}", left_over=refused)


def _widen_head(contents, arrays):
    """Adds zeros for the class token to the kernel of a head on the mean of the patches."""
    for array in arrays:
        kernel = contents.arrays.get(array.name)
        wanted = array.names[1] == "head/kernel" and (array.shape[0], array.shape[1] // 2)
        if kernel is not None and kernel.shape == wanted:
            contents.arrays[array.name] = np.pad(kernel, ((0, 0), (kernel.shape[1], 0)))


def _convert_patches(file, model, normalization):
    """Converts the file's patch embedding; leaves other shapes, for the comparison to refuse."""
    named = {array.names[1]: array for array in file.arrays}
    of_kernel, of_bias = (named.get(f"embedding/{leaf}") for leaf in ("kernel", "bias"))
    contents, arrays = file.contents, file.contents.arrays
    if not of_kernel or not contents.has_numbers(of_kernel.name) or model.arguments.get("resnet"):
        return
    if arrays[of_kernel.name].ndim != 4:
        return
    (kernel,) = of_kernel.packing.unpack(arrays[of_kernel.name], 1)
    if kernel.shape[2] != 3:
        if normalization is None:
            return
        raise CheckpointError(
            f"{contents.path} is not of color images: expected a kernel of 3 channels, whose "
            f"normalization is known. Received: {of_kernel.name} of {kernel.shape[2]}. Nothing was "
            "loaded."
        )
    flexible = file.interpolation == "antialiased"
    kernel, shift = convert_patches(kernel, model.arguments, normalization, flexible)
    arrays[of_kernel.name] = of_kernel.packing.pack([kernel], kernel.shape)
    if contents.has_numbers(of_bias.name) and arrays[of_bias.name].shape == kernel.shape[-1:]:
        arrays[of_bias.name] = (arrays[of_bias.name] + shift).astype(np.float32)


def layout_of(contents: Contents, grid: Grid | None) -> FileLayout:
    """Returns the layout of a file; takes off a prefix of all names, as wrappers of models add.

    Raises CheckpointError if it is in no known format.
    """
    for each in TORCH_LAYOUTS:
        if each.detect(contents.shapes):
            contents.arrays = each.converted(contents.arrays)
    _refuse(contents, r"lora_|\.base_layer\.", ADAPTER)
    prefixes = {name[: m.end()] for name in contents.arrays for m in re.finditer(r"^|\.", name)}
    found: list[str] = []
    for prefix in sorted(prefixes):
        if prefix.startswith(tuple(found)):
            continue
        own = {n[len(prefix) :]: a for n, a in contents.arrays.items() if n.startswith(prefix)}
        shapes = {name: array.shape for name, array in own.items()}
        layout = next(filter(None, (each.detect(shapes, grid) for each in LAYOUTS)), None)
        if layout and len(own) == len(contents.arrays):
            contents.arrays = own
            return layout
        if layout:
            found.append(prefix)
    if found:
        others = [name for name in contents.arrays if not name.startswith(tuple(found))]
        raise CheckpointError(
            f"Expected a prefix that all names have, or none. Received: {contents.path}, with "
            f"{some(found)} before a model's names, and {some(others) or 'no others'}"
            ". Write the arrays of one model without the prefix. Nothing was loaded.",
            left_over=others,
        )
    raise CheckpointError(
        f"{contents.path} is in no known format. Expected the arrays of "
        f"{', '.join(layout.title for layout in LAYOUTS)}. Its first arrays are: "
        f"{some(sorted(contents.shapes)) or 'none'}"
    )


def _assign(model, file, skip, path):
    _check_skip(file, skip)
    arrays = [array for array in file.arrays if not file.is_in(skip, *array.names)]
    values = _fitting(model, file, arrays, skip)
    not_finite = [name for name, value in values.items() if not np.isfinite(value).all()]
    if not_finite:
        raise CheckpointError(
            f"{file.contents.path} holds NaN or infinite values in: {', '.join(not_finite)}. "
            "Nothing was loaded."
        )
    weights = [weight for array in arrays for weight in array.weights]
    computed = [each.name for each in weights if not isinstance(each.variable, keras.Variable)]
    if computed:
        raise CheckpointError(
            "Expected a model whose weights are variables. Received: LoRA's sums in "
            f"{', '.join(computed[:3])}. Load before `enable_lora`. Nothing was loaded."
        )
    for array in arrays:
        for weight, value in zip(array.weights, array.unpack(values[array.name]), strict=True):
            weight.variable.assign(np.reshape(value, weight.variable.shape))
    model.checkpoint_layout = file.layout
    model.license = file.contents.own.get("license") or model.license
    if isinstance(model, Segmenter) and "padding_color" in file.contents.own:
        model.arguments["padding_color"] = file.contents.own["padding_color"]
    if not _HEADS & {weight.name for weight in weights}:
        return
    count, head = model.arguments["num_classes"], dict(file.contents.own)
    if published_classifier(path) and not head.get("class_names"):
        head["class_names"] = imagenet_classes()
    for name in OF_HEAD:
        stated, own = head.get(name), getattr(model, name)
        if not stated or stated == own or (name == "class_names" and len(stated) != count):
            continue
        if own and name == "class_names":
            warnings.warn(
                f"The head of {file.contents.path} stands for {some(stated)}: these are the "
                f"model's classes now. They were {some(own)}.",
                stacklevel=3,
            )
        setattr(model, name, stated)


def _check_skip(file, skip):
    """Refuses names that nothing has; a model or a file may lack the parts after the encoder."""
    names = (*file.contents.arrays, *(name for array in file.arrays for name in array.names))
    unknown = [p for p in skip if p not in _OPTIONAL and not file.is_in((p,), *names)]
    if unknown:
        modules = sorted({name.rpartition("/")[0] or name for name in file.contents.arrays})
        raise CheckpointError(
            "Expected in `skip` names of arrays, or of the modules before them, that the model or "
            f"{file.contents.path} has. Received: {', '.join(map(repr, unknown))}. "
            f"The file's begin with: {', '.join(modules[:5])}. Nothing was loaded."
        )


def _fitting(model, file, arrays, skip):
    """Returns {name: value}, positions resized, LayerScale folded; raises unless all fit."""
    contents, held = file.contents, file.contents.arrays
    # A file has LayerScale in every block or in none.
    scales = {array.scale for array in arrays if array.scale}
    known = {array.name for array in arrays} | (scales if scales & held.keys() else set())
    left_over = [
        name
        for name in held
        if name not in known and file.layout.owns(name) and not file.is_in(skip, name)
    ]
    missing = sorted(known - held.keys())
    numeric = {name: held[name] for name in known & held.keys() if contents.has_numbers(name)}
    no_numbers = sorted(known & held.keys() - numeric.keys())
    problems = {name: f"{name} does not hold floating-point numbers" for name in no_numbers}
    values = {}
    for array in (array for array in arrays if array.name in numeric):
        name, value, gamma = array.name, numeric[array.name], numeric.get(array.scale)
        try:
            values[name] = _resized(file, array, value)
        except CheckpointError as error:
            problems[name] = f"{name}: {error}"
            continue
        if values[name] is value and value.shape != tuple(array.shape):
            problems[name] = f"{name} is {value.shape}, the model's is {array.shape}"
        elif gamma is not None and gamma.shape != value.shape[:1]:
            problems[array.scale] = f"{array.scale} is {gamma.shape}, and {name} {value.shape}"
        elif gamma is not None:
            values[name] = (value.T * gamma).T
    if not (missing or left_over or problems):
        return values
    described = (f"{name} {held[name].shape}" for name in sorted(left_over))
    sections = {
        "Missing from the file": ", ".join(missing),
        "Left over in the file": ", ".join(described),
        "Of another shape": "; ".join(problems.values()),
    }
    lines = [f"{title}: {names}" for title, names in sections.items() if names]
    message = f"{contents.path} does not fit the model {model.name!r}. Nothing was loaded."
    advice = _advice(file, [*missing, *left_over, *problems])
    raise CheckpointError("\n".join([message, *lines, advice]), missing, left_over, problems)


def _advice(file, names):
    kind = file.contents.config.get("model_type", "vit")
    if kind not in [*MODEL_TYPES]:
        return f"config.json says model_type={kind!r}, which is another architecture."
    parts = [part for part in _OPTIONAL if file.layout.is_in(part, *names)]
    if all(file.is_in(parts, name) for name in names):
        spelled = ", ".join(f'"{part}"' for part in parts)
        return f"To leave those arrays out, pass skip=({spelled},)."
    patches = {array.name for array in file.arrays if array.names[1] == "embedding/kernel"}
    flexible = " FlexiViT's patches are resized with flexible=True."
    return (
        "Build the model with the configuration of the checkpoint, or name in `skip` the arrays "
        f"or modules to leave out.{flexible if patches & {*names} else ''}"
    )


def _resized(file, array, value):
    """Returns an array of positions in the model's grid, and other arrays as they are."""
    positions, shape, grid = array.positions, value.shape, file.grid
    if positions is None or (len(shape), shape[-1:]) != (len(array.shape), array.shape[-1:]):
        return value
    if isinstance(positions, int):
        if grid and len(value) != grid[positions]:
            raise CheckpointError(
                f"{len(value)} position embeddings do not fit the grid that is stated, {grid[0]} "
                f"rows and {grid[1]} columns"
            )
        return resize_grid(value, array.shape[0]) if len(value) else value
    table = value[None] if value.ndim == 2 else value
    if len(table) != 1:
        return value
    file.layout.require_table(shape[-2], file.contents.shapes, grid)
    side = math.isqrt(shape[-2])
    if file.is_published and not grid and 0 <= shape[-2] - side**2 <= 2:
        grid = side, side
    mine = positions.class_token, positions.grid_size
    return resize_table(table, *mine, grid, file.layout.class_entry, file.interpolation)


def _compare_stated_arguments(model, contents, row, layout, stated):
    """Compares a model with the row of a published name, or with the configuration of a file.

    Raises:
        CheckpointError: for another number of heads, rotary positions on one side, or an activation
            of another kind. Another GELU, epsilon, pooling or place of the positions is a warning,
            and so is another GELU than that of the format, where nothing states one.
    """
    origin = row.path if row else f"The configuration or format of {contents.path}"
    stated = {**layout.arguments, **stated, **contents.own}
    if row:
        stated = arguments_of_model(row.model) | dict(row.arguments)
    gated = model.arguments.get("mlp", "gelu") != "gelu"
    if gated:
        stated.pop("gelu", None)
    differing = {
        name: stated[name]
        for name in STATED
        if name in stated and model.arguments.get(name, stated[name]) != stated[name]
    }
    pool = stated.get("global_pool")
    pool = contents.own.get("classifier") or (pool and POOLING.get(str(pool), f"timm's {pool}"))
    if pool == "gap" and layout.class_entry:
        pool = "token_gap"  # of which it is the second half
    if pool == "token" and _classifier_of(model) == "distilled":
        pool = "distilled"  # of which it is the first half; the arrays show the other
    if stated.get("pool_include_prefix") and model.arguments.get("register_tokens"):
        pool = pool if pool in (None, "token") else f"{pool} of all tokens"
    if pool and model.arguments.get("classifier", pool) not in (pool, "unpooled"):
        differing["classifier"] = pool
    positions = (differing.get("position_embedding"), model.arguments.get("position_embedding"))
    # No array shows these, and nobody means to have them otherwise.
    for name in ("num_heads", *["position_embedding"] * ("rope_2d" in positions)):
        if name in differing:
            wanted, own = differing[name], model.arguments[name]
            raise CheckpointError(
                f"{origin} says {name}={wanted!r}, the model has {name}={own!r}. Build the model "
                f"with {name}={wanted!r}. Nothing was loaded."
            )
    if model.arguments.get("representation_size") and stated.get("pooler_act", "tanh") != "tanh":
        raise CheckpointError(
            f"Expected the pooler's activation to be tanh. {origin} says "
            f"pooler_act={stated['pooler_act']!r}. Nothing was loaded."
        )
    usual = None if gated else getattr(layout, "gelu", None)
    if "gelu" not in stated and usual and model.arguments.get("gelu", usual) != usual:
        warnings.warn(
            f"{contents.path} states no activation, and {layout.title} has gelu={usual!r} unless "
            f"it says otherwise; the model has gelu={model.arguments['gelu']!r}. The weights are "
            "loaded: make sure that these belong together.",
            stacklevel=4,
        )
    if differing:
        spelled = ", ".join(f"{name}={value!r}" for name, value in differing.items())
        warnings.warn(
            f"{origin} asks for {spelled}. The weights are loaded, but the model computes "
            "other numbers unless it is built with them.",
            stacklevel=4,
        )
