"""Strict loading of published checkpoints."""

import inspect
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.checkpoints import resized_positions_and_patches as resized
from keras_vit.checkpoints.download import find_checkpoint
from keras_vit.checkpoints.npz_and_safetensors import (
    ADAPTER,
    OF_HEAD,
    STATED,
    CheckpointError,
    Grid,
    Source,
    open_source,
    some,
)
from keras_vit.checkpoints.npz_file_layouts import BiTLayout, FileArray, FileLayout, Layout
from keras_vit.checkpoints.published_weights import PERMISSIVE, published, published_classifier
from keras_vit.checkpoints.pytorch_layouts import TORCH_FORMATS, TorchLayout
from keras_vit.checkpoints.weights_of_model import weights_of
from keras_vit.models.inner_layers import require_unquantized
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.photos.imagenet_classes import imagenet_classes
from keras_vit.variants import TIMM_NAMES, arguments_of

# Names of arrays that no model here has a place for, and why.
_REFUSED = {
    r"lora_|\.base_layer\.": ADAPTER,
    r"dist_token|distillation_|head_dist": "is of a distilled model: its second class token takes "
    "part in attention, and models here have one. Load a DeiT that was trained without, such as "
    "timm/deit_base_patch16_224.fb_in1k. Nothing was loaded.",
}
# Keys of a configuration that turn off the biases of these parts of every block.
_BIASES = {"qkv_bias": "query|key|value", "proj_bias": "out|Dense_0|Dense_1"}
# Hugging Face's architectures that models here are.
_MODEL_TYPES = ("vit", "dinov2", "dinov2_with_registers", "siglip", "siglip_vision_model")
FORMATS = (Layout, BiTLayout, *TORCH_FORMATS)
# The parts after the encoder.
_OPTIONAL = ("head", "pre_logits")
_HEADS = {"head/kernel", "resnet/head/conv2d/kernel"}
# Names of Hugging Face and of timm.
_GELU = {"gelu": "erf", "gelu_erf": "erf", "gelu_python": "erf"}
_GELU |= dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_tanh"), "tanh")
_POOLING = {"token": "token", "avg": "gap", "map": "map"}  # timm's
_HUGGING_FACE_NAMES = {"num_heads": "num_attention_heads", "layer_norm_epsilon": "layer_norm_eps"}
_DEFAULTS = {n: p.default for n, p in inspect.signature(VisionTransformer).parameters.items()}


class _File(NamedTuple):
    """A file as that of a plain model of a model's images, and how its positions are resized."""

    source: Source
    layout: FileLayout
    arrays: list[FileArray]
    grid: Grid | None
    flexible: bool
    # Published tables are square.
    is_published: bool

    def is_in(self, parts: Sequence[str], *names: str) -> bool:
        """Returns whether an array is one of the `parts`, or inside of a module of them."""
        spelled = [each for part in parts for each in self.layout.spellings(part)]
        inside = tuple(f"{each}{mark}" for each in spelled for mark in "/.")
        return any(name in spelled or name.startswith(inside) for name in names)


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
    of BiT, the safetensors of Hugging Face and of timm, and models saved with `model.save`. The
    format is recognized from the arrays' names. Position embeddings of another image size are
    resized, corners aligned, by `keras_vit.checkpoints.resized_positions_and_patches`. A prefix
    that all names have is taken off. With a head come the class names and the activation that a
    `.keras` file or a config.json states.

    Args:
        model: a `VisionTransformer` or `ResNetV2`.
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
            as FlexiViT does: `keras_vit.checkpoints.resized_positions_and_patches.resize_kernel`.

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
            file replaces the model's class names by its own.

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
    file = _open(model, path)
    skip = []
    for part in _OPTIONAL:
        mine = [array for array in file.arrays if file.is_in((part,), *array.names)]
        shapes = file.source.shapes
        fits = mine and all(shapes.get(a.name) == tuple(a.shape) for a in mine)
        if not fits and (part == "head" or not mine):
            skip.append(part)
    _assign(model, file, tuple(skip), path)


def _open(model, path, position_grid=None, mean=None, std=None, flexible=False):
    row, is_published = published(path), not Path(path).exists()
    source = open_source(find_checkpoint(path))
    if row:
        if row.license not in PERMISSIVE:
            warnings.warn(
                f"The weights {path} are published under {row.license}, which does not allow every "
                "use. Read it before you build on them.",
                stacklevel=3,
            )
        if mean is None and std is None:
            mean, std = row.mean, row.std
        flexible = flexible or row.flexible
    grid = position_grid or source.grid
    layout = _layout_of(source, grid)
    require_unquantized(model)
    weights = weights_of(model)
    _compare_stated_arguments(model, source, row, layout)
    layout.fold(source)
    normalization = None
    if isinstance(layout, TorchLayout):
        normalization = resized.normalization_of(source, mean, std)
    elif mean is not None or std is not None:
        raise CheckpointError(
            f"`mean` and `std` are of safetensors files; {source.path} has the names of "
            f"{layout.title}, whose models take [-1, 1]. Leave them out. Nothing was loaded."
        )
    resized.convert_patches(source, layout, model, normalization, flexible)
    arrays, stated = layout.file_arrays(weights), _of_config(source.config)
    absent = "|".join(parts for key, parts in _BIASES.items() if stated.get(key) is False)
    for array in arrays:
        if absent and re.fullmatch(rf"Transformer/.*/({absent})/bias", array.names[1]):
            source.arrays.setdefault(array.name, np.zeros(array.shape, np.float32))
    return _File(source, layout, arrays, grid, flexible, is_published)


def _layout_of(source, grid):
    """Returns the layout of a file; takes off a prefix of all names, as wrappers of models add."""
    for marks, refusal in _REFUSED.items():
        refused = [name for name in source.arrays if re.search(marks, name)]
        if refused:
            raise CheckpointError(f"{source.path} {refusal}", left_over=refused)
    prefixes = {name[: m.end()] for name in source.arrays for m in re.finditer(r"^|\.", name)}
    found: list[str] = []
    for prefix in sorted(prefixes):
        if prefix.startswith(tuple(found)):
            continue
        own = {n[len(prefix) :]: a for n, a in source.arrays.items() if n.startswith(prefix)}
        shapes = {name: array.shape for name, array in own.items()}
        layout = next(filter(None, (make.detect(shapes, grid) for make in FORMATS)), None)
        if layout and len(own) == len(source.arrays):
            source.arrays = own
            return layout
        if layout:
            found.append(prefix)
    if found:
        others = [name for name in source.arrays if not name.startswith(tuple(found))]
        raise CheckpointError(
            f"Expected a prefix that all names have, or none. Received: {source.path}, with "
            f"{some(found)} before a model's names, and {some(others) or 'no others'}"
            ". Write the arrays of one model without the prefix. Nothing was loaded.",
            left_over=others,
        )
    raise CheckpointError(
        f"{source.path} is in no known format. Expected the arrays of "
        f"{', '.join(layout.title for layout in FORMATS)}. Its first arrays are: "
        f"{some(sorted(source.shapes)) or 'none'}"
    )


def _assign(model, file, skip, path):
    _check_skip(file, skip)
    arrays = [array for array in file.arrays if not file.is_in(skip, *array.names)]
    values = _fitting(model, file, arrays, skip)
    not_finite = [a.name for a in arrays if not np.isfinite(file.source.arrays[a.name]).all()]
    if not_finite:
        raise CheckpointError(
            f"{file.source.path} holds NaN or infinite values in: {', '.join(not_finite)}. "
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
        parts = array.unpack(values[array.name], *array.weights)
        for weight, part in zip(array.weights, parts, strict=True):
            weight.variable.assign(np.reshape(part, weight.variable.shape))
    model.checkpoint_layout = file.layout
    loaded = {weight.name for weight in weights}
    classes = imagenet_classes() if _HEADS & loaded and published_classifier(path) else ()
    if classes and len(classes) == model.arguments["num_classes"]:
        model.class_names = classes
    for name in OF_HEAD if _HEADS & loaded else ():
        stated, own = file.source.own.get(name), getattr(model, name)
        fits = name != "class_names" or len(stated or ()) == model.arguments["num_classes"]
        if stated and stated != own and fits:
            if own and name == "class_names":
                warnings.warn(
                    f"The head of {file.source.path} stands for {some(stated)}: these are the "
                    f"model's classes now. They were {some(own)}.",
                    stacklevel=3,
                )
            setattr(model, name, stated)


def _check_skip(file, skip):
    """Refuses names that nothing has; a model or a file may lack the parts after the encoder."""
    names = (*file.source.arrays, *(name for array in file.arrays for name in array.names))
    unknown = [p for p in skip if p not in _OPTIONAL and not file.is_in((p,), *names)]
    if unknown:
        modules = sorted({name.rpartition("/")[0] or name for name in file.source.arrays})
        raise CheckpointError(
            "Expected in `skip` names of arrays, or of the modules before them, that the model or "
            f"{file.source.path} has. Received: {', '.join(map(repr, unknown))}. "
            f"The file's begin with: {', '.join(modules[:5])}. Nothing was loaded."
        )


def _fitting(model, file, arrays, skip):
    """Returns {name: value}, positions resized to the model; raises unless everything fits."""
    known = {array.name for array in arrays}
    left_over = [
        name
        for name in file.source.arrays
        if name not in known and file.layout.owns(name) and not file.is_in(skip, name)
    ]
    missing, problems, values = [], {}, {}
    for array in arrays:
        name, value = array.name, file.source.arrays.get(array.name)
        if value is None:
            missing.append(name)
        elif not file.source.has_numbers(name):
            problems[name] = f"{name} does not hold floating-point numbers"
        else:
            try:
                values[name] = _resized(file, array, value)
            except CheckpointError as error:
                problems[name] = f"{name}: {error}"
            else:
                if values[name] is value and value.shape != tuple(array.shape):
                    problems[name] = f"{name} is {value.shape}, the model's is {array.shape}"
    if not (missing or left_over or problems):
        return values
    described = (f"{name} {file.source.arrays[name].shape}" for name in sorted(left_over))
    sections = {
        "Missing from the file": ", ".join(sorted(missing)),
        "Left over in the file": ", ".join(described),
        "Of another shape": "; ".join(problems.values()),
    }
    lines = [f"{title}: {names}" for title, names in sections.items() if names]
    message = f"{file.source.path} does not fit the model {model.name!r}. Nothing was loaded."
    advice = _advice(file, [*missing, *left_over, *problems])
    raise CheckpointError("\n".join([message, *lines, advice]), missing, left_over, problems)


def _advice(file, names):
    kind = file.source.config.get("model_type", "vit")
    if kind not in _MODEL_TYPES:
        return f"config.json says model_type={kind!r}, which is another architecture."
    parts = [part for part in _OPTIONAL if file.is_in((part,), *names)]
    if all(file.is_in(parts, name) for name in names):
        spelled = ", ".join(f'"{part}"' for part in parts)
        return f"To leave those arrays out, pass skip=({spelled},)."
    flexible = " FlexiViT's patches are resized with flexible=True."
    return (
        "Build the model with the configuration of the checkpoint, or name in `skip` the arrays "
        f"or modules to leave out.{flexible if file.layout.patch_arrays()[0] in names else ''}"
    )


def _resized(file, array, value):
    """Returns an array of positions in the model's grid, and other arrays as they are."""
    positions, shape, grid = array.positions, value.shape, file.grid
    class_entry = file.layout.class_entry
    if positions is None or (len(shape), shape[-1:]) != (len(array.shape), array.shape[-1:]):
        return value
    if isinstance(positions, int):
        if grid and len(value) != grid[positions]:
            raise CheckpointError(
                f"{len(value)} position embeddings do not fit the grid that is stated, {grid[0]} "
                f"rows and {grid[1]} columns"
            )
        return resized.resize_line(value, array.shape[0]) if len(value) else value
    if len(value) != 1:
        return value
    _require_no_register_positions(file, shape[1])
    if file.is_published and not grid:
        grid = (resized.square_grid(shape[1], positions.class_token, class_entry) or ())[:2]
    mine = positions.class_token, positions.grid_size
    return resized.resize_table(value, *mine, grid, file.flexible, class_entry)


def _require_no_register_positions(file, entries):
    """Refuses a table of timm that has entries of the register tokens before those of patches."""
    modules, shapes = getattr(file.layout, "modules", {}), file.source.shapes
    registers = math.prod(shapes.get(modules.get("reg"), (0,))[:2])
    patches = entries - registers - (modules.get("cls") in shapes)
    wanted = file.grid and math.prod(file.grid)
    if registers and patches > 0 and patches == (wanted or math.isqrt(patches) ** 2):
        raise CheckpointError(
            f"{entries} position embeddings seem to have entries of the {registers} register "
            "tokens, which models here do not take; if they have not, pass `position_grid`"
        )


def _compare_stated_arguments(model, source, row, layout):
    """Compares a model with the row of a published name, or with the configuration of a file.

    Raises:
        CheckpointError: for another number of heads, or an activation that is no GELU. Another
            GELU, epsilon, pooling or place of the positions is a warning, and so is another GELU
            than that of the format, where nothing states one.
    """
    origin = row.path if row else f"The configuration of {source.path}"
    stated = {**_of_config(source.config), **source.own}
    if row:
        stated = _of_model(row.model) | dict(row.arguments)
    differing = {
        name: stated[name]
        for name in STATED
        if name in stated and model.arguments.get(name, stated[name]) != stated[name]
    }
    pool = stated.get("global_pool")
    pool = source.own.get("classifier") or (pool and _POOLING.get(str(pool), f"timm's {pool}"))
    if stated.get("pool_include_prefix") and model.arguments.get("register_tokens"):
        pool = pool if pool in (None, "token") else f"{pool} of all tokens"
    if pool and model.arguments.get("classifier", pool) not in (pool, "unpooled"):
        differing["classifier"] = pool
    if "num_heads" in differing:
        heads, own = differing["num_heads"], model.arguments["num_heads"]
        raise CheckpointError(
            f"{origin} says num_heads={heads!r}, the model has num_heads={own}. Build the model "
            f"with num_heads={heads}. Nothing was loaded."
        )
    if model.arguments.get("representation_size") and stated.get("pooler_act", "tanh") != "tanh":
        raise CheckpointError(
            f"Expected the pooler's activation to be tanh. {origin} says "
            f"pooler_act={stated['pooler_act']!r}. Nothing was loaded."
        )
    usual = getattr(layout, "gelu", None)
    if "gelu" not in stated and usual and model.arguments.get("gelu", usual) != usual:
        warnings.warn(
            f"{source.path} states no activation, and {layout.title} has gelu={usual!r} unless it "
            f"says otherwise; the model has gelu={model.arguments['gelu']!r}. The weights are "
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


def _of_model(name) -> dict[str, Any]:
    return _DEFAULTS | arguments_of(name)[1]


def _of_config(config) -> dict[str, Any]:
    """Returns the arguments in a configuration: ours, timm's or one of Hugging Face's."""
    architecture, tower = str(config.get("architecture")), config.get("vision_config")
    own = config.get("model_args")
    own = dict(own) if isinstance(own, Mapping) else {}
    if architecture in TIMM_NAMES:
        stated = _of_model(architecture) | own
        if own.get("pos_embed") == "none":
            stated["position_embedding"] = "none"
    else:
        config = tower if isinstance(tower, Mapping) else config
        names = {ours: name for ours, name in _HUGGING_FACE_NAMES.items() if name in config}
        stated = {**config, **own, **{ours: config[name] for ours, name in names.items()}}
    activation = own.get("act_layer", config.get("hidden_act"))
    if activation is not None:
        if not isinstance(activation, str) or activation not in _GELU:
            raise CheckpointError(
                f"Expected the activation to be a GELU, one of {', '.join(_GELU)}. The file's "
                f"configuration says {activation!r}. Nothing was loaded."
            )
        stated["gelu"] = _GELU[activation]
    return stated
