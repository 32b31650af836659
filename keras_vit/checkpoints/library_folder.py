"""The model that a folder of Hugging Face or timm holds, and how it prepares photos."""

import logging
import math
import os
import re
from collections.abc import Mapping
from typing import Any

import keras

from keras_vit.checkpoints.array_files import Contents, read_arrays
from keras_vit.checkpoints.download import find_checkpoint
from keras_vit.checkpoints.errors import CheckpointError, reading, some
from keras_vit.checkpoints.library_configs import (
    CONFIG,
    MODEL_TYPES,
    OURS,
    POOLING,
    PREPROCESSOR,
    RENAMED,
    json_beside,
    stated_arguments,
)
from keras_vit.checkpoints.load import layout_of, load_weights
from keras_vit.checkpoints.torch_layouts import TorchLayout
from keras_vit.checkpoints.weights_of_model import POSITION_TABLE
from keras_vit.models.argument_ranges import as_height_width
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.type_hints import ImageSize
from keras_vit.variants import TIMM_NAMES

# Our arguments that a folder states.
_STATED = {*RENAMED.values(), "patch_size", "position_embedding", "mlp", "gelu"}
# timm's further arguments that models here follow, that the arrays show, or that training has.
_OF_TIMM = re.compile(
    "patch_size|num_heads|in_chans|num_classes|mlp_ratio|global_pool|class_token|fc_norm|"
    "init_values|no_embed_class|pos_embed|act_layer|(qkv|proj)_bias|(dynamic|strict)_img_.*|"
    "rope_temperature|weight_init|.*_rate"
)
# Pillow's numbers of the ways to resize, and timm's names that are not ours.
METHODS = {1: "lanczos3", 2: "bilinear", 3: "bicubic"}
_NAMES = {"lanczos": "lanczos3", "random": "bilinear"}

logger = logging.getLogger("keras_vit")


def model_of_folder(
    path: str | os.PathLike,
    num_classes: int | str | None,
    image_size: ImageSize | None,
    overrides: Mapping[str, Any],
) -> keras.Model:
    """Returns the model of a folder of transformers or timm, with all that it states.

    The arguments are those of `keras_vit.create_model`. Raises CheckpointError, in one line, for
    another kind of model, or if the arrays and the configuration contradict each other.
    """
    contents, arguments = read_library_folder(path)
    size = as_height_width(image_size or arguments["image_size"])
    arguments |= {} if num_classes == "own" else {"num_classes": num_classes}
    model = VisionTransformer(**arguments | {"image_size": size, **overrides})
    with reading(contents.path.with_name(PREPROCESSOR)):
        model.preprocessing = _preprocessing(contents, size)
    try:
        load_weights(model, contents)
    except CheckpointError as error:
        if names := [*error.mis_shaped, *error.missing, *error.left_over]:
            raise _contradiction(contents, some(names)) from error
        raise
    with reading(contents.path.with_name(OURS)):
        least = (json_beside(contents.path, OURS) or {}).get("thresholds")
        model.thresholds = least if num_classes == "own" else None
    return model


def read_library_folder(path: str | os.PathLike) -> tuple[Contents, dict[str, Any]]:
    """Returns the arrays of a folder, and the arguments of its `VisionTransformer`.

    Raises CheckpointError for another kind of model, classes or positions of another number.
    """
    contents = read_arrays(find_checkpoint(path))
    layout, config = layout_of(contents, contents.grid), contents.config
    if not isinstance(layout, TorchLayout) or not config:
        raise CheckpointError(
            f"Expected {CONFIG} beside {contents.path}, which says what its arrays do not. Copy it "
            "too, or build the model by its name and load the file with load_checkpoint."
        )
    with reading(contents.path.with_name(CONFIG)):
        return contents, _arguments(contents, layout)


def _contradiction(contents, what):
    return CheckpointError(
        f"{CONFIG} and {contents.path} contradict each other in {what}. Write both again."
    )


def _arguments(contents, layout):
    config, shapes = contents.config, contents.shapes
    kind, own = config.get("model_type"), config.get("model_args") or {}
    key, known = ("architecture", TIMM_NAMES) if "architecture" in config else ("model_type", ())
    wrong = [f"{n}={own[n]!r}" for n in own if not (n in RENAMED or _OF_TIMM.fullmatch(n))]
    # A list, as a damaged file may state something that is not hashable.
    if config.get(key) not in [*(known or MODEL_TYPES)]:
        wrong = [f"{key}={config.get(key)!r}"]
    if wrong:
        raise CheckpointError(
            f"Expected a model_type of {', '.join(MODEL_TYPES)}, or an architecture of timm that "
            'keras_vit.list_models("*_patch*") names, without arguments that models here lack. '
            f"{CONFIG} says {wrong[0]}."
        )
    stated = {"gelu": "erf", "image_size": 224, **MODEL_TYPES.get(kind, {})}
    stated |= {**layout.arguments, **stated_arguments(config)}
    named = ((RENAMED.get(key, key), value) for key, value in stated.items())
    arguments = {name: value for name, value in named if name in _STATED}
    gated = stated.get("use_swiglu_ffn") or stated.get("use_gated_mlp")
    if gated:
        arguments["mlp"] = "swiglu"
    if stated.get("mlp_ratio") or "embed_dim" in own:
        ratio = stated.get("mlp_ratio") or stated["mlp_dim"] / stated["hidden_size"]
        width = int(arguments.get("hidden_size", 768) * ratio)
        # DINOv2 keeps the number of weights; timm's array has both halves.
        halved = width // 2 if arguments.get("mlp") == "swiglu" else width
        arguments["mlp_dim"] = (int(width * 2 / 3) + 7) // 8 * 8 if gated else halved
    # Before a model is built of sizes that a crafted file may claim.
    sizes = {"hidden_size": 768, "mlp_dim": 3072, "num_layers": 12, "register_tokens": 0}
    width, hidden, layers, registers = (int(arguments.get(n, sizes[n])) for n in sizes)
    claimed = layers * width * (4 * width + 2 * hidden) + registers * width
    if claimed > 2 * sum(array.size for array in contents.arrays.values()):
        raise _contradiction(contents, "the sizes: the arrays are of a smaller model")
    size, patch = as_height_width(arguments["image_size"]), arguments.get("patch_size", 16)
    table = shapes.get(layout.modules.get(POSITION_TABLE))
    places = (size[0] // patch) * (size[1] // patch)
    if table and not 0 <= table[-2] - places <= 2:
        raise _contradiction(contents, f"the positions: {table[-2]} of them, {places} patches")
    classes = shapes.get(f"{layout.modules['head']}.weight", (None,))[0]
    for labels in (config.get("id2label"), config.get("label_names")):
        if classes and labels and len(labels) != classes:
            raise _contradiction(contents, f"the classes: {classes} of them, {len(labels)} names")
    classifier = _classifier(config, layout, shapes, stated, classes)
    return arguments | {"num_classes": classes, "classifier": classifier}


def _classifier(config, layout, shapes, stated, classes):
    if layout.modules.get("dist") in shapes:
        return "distilled"
    has_token = layout.modules.get("cls") in shapes
    if "architecture" not in config:
        if not has_token:
            pooled = "map" if layout.modules.get("MAPHead_0/probe") in shapes else "unpooled"
            return "gap" if classes else pooled
        # DINOv2's head reads the mean of the patches too.
        return "token_gap" if classes and config["model_type"].startswith("dinov2") else "token"
    usual = {ours: theirs for theirs, ours in POOLING.items()}[stated["classifier"]]
    pool = stated.get("global_pool", config.get("global_pool", usual))
    if pool == "avg" and has_token and (layout.class_entry or not classes):
        # Without a head loading warns that timm's output is another part of it.
        return "token_gap" if classes else "token"
    if pool not in POOLING or (pool == "token") != has_token or "fc_norm.weight" in shapes:
        raise CheckpointError(
            "Expected timm's pooling of a class token, or without one the mean after the last "
            f"normalization, or attention. {CONFIG} says global_pool={pool!r}, with"
            f"{'' if has_token else 'out'} a class token"
            f"{' and with fc_norm' if 'fc_norm.weight' in shapes else ''}."
        )
    return POOLING[pool]


def _preprocessing(contents, size):
    """Returns the operations that make a photo into an image of (height, width), or None.

    Of another size than the folder's they cut out the same part of a photo.
    """
    ours, stated = (json_beside(contents.path, name) for name in (OURS, PREPROCESSOR))
    cfg = contents.config.get("pretrained_cfg")
    if ours and ours["image_size"] == list(size):
        return str(ours["preprocessing"])
    if isinstance(cfg, Mapping):
        name, mode = cfg.get("interpolation", "bicubic"), cfg.get("crop_mode", "center")
        method = _NAMES.get(name, name)
        whole = [math.floor(side / cfg.get("crop_pct", 0.875)) for side in size]
        shorter = whole[0] if mode == "center" and size[0] == size[1] else None
        whole = whole if mode == "squash" else None
    elif stated is not None:
        method, shorter, whole = _of_processor(stated, size)
    else:
        return None
    if not (shorter or whole) or method not in METHODS.values():
        logger.warning(
            "%s prepares photos in a way that models here do not know: they are resized instead.",
            contents.path.parent,
        )
        return None
    name, sides = ("resize_small", shorter) if shorter else ("resize", whole)
    crop = "" if sides == list(size) else f"central_crop({list(size)})|"
    text = f"decode|{name}({sides},'{method}',True)|{crop}to_uint8|value_range(-1,1)"
    return text.replace(" ", "")


def _of_processor(stated, size):
    """Returns how transformers resizes: the method, and the shorter side or (height, width)."""
    kind = str(stated.get("image_processor_type", stated.get("feature_extractor_type", "ViT")))
    method = METHODS.get(stated.get("resample", 2 if kind.startswith(("ViT", "DINOv3")) else 3))
    # One number is the shorter side, or both.
    names = ("shortest_edge",) if kind.startswith(("Bit", "CLIP")) else ("height", "width")
    sides, crop = stated.get("size"), stated.get("crop_size")
    sides = dict.fromkeys(names, sides) if isinstance(sides, int) else sides
    crop = dict.fromkeys(("height", "width"), crop) if isinstance(crop, int) else crop
    crop = crop if stated.get("do_center_crop") else None
    if not stated.get("do_resize", True) or not sides:
        return method, None, None
    if "shortest_edge" in sides:
        least = crop and min(crop["height"], crop["width"])
        return method, least and round(sides["shortest_edge"] * min(size) / least), None
    whole, of = ([each["height"], each["width"]] for each in (sides, crop or sides))
    return method, None, [round(a * b / c) for a, b, c in zip(whole, size, of, strict=True)]
