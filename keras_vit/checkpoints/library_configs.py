"""Facts that timm and Hugging Face state in JSON files beside the weights."""

import inspect
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints.errors import CheckpointError, reading
from keras_vit.checkpoints.layout import Grid
from keras_vit.checkpoints.published_weights import PERMISSIVE
from keras_vit.layers.position_embeddings_2d import THETA
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.photos.imagenet_classes import require_class_name
from keras_vit.variants import TIMM_NAMES, arguments_of

CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
# A file of folders that we wrote: "image_size", (height, width), "preprocessing", "thresholds".
OURS = "keras_vit.json"
# Hugging Face's architectures that models here are, and what transformers takes where a config.json
# leaves it out; other sizes are ViT-B/16's.
MODEL_TYPES: dict[str, dict[str, Any]] = {
    "vit": {"layer_norm_epsilon": 1e-12},
    "deit": {"layer_norm_epsilon": 1e-12},
    "dinov2": {"patch_size": 14, "mlp_ratio": 4},
    "dinov2_with_registers": {"mlp_ratio": 4, "num_register_tokens": 4},
    "dinov3_vit": {"hidden_size": 384, "intermediate_size": 1536, "num_heads": 6},
    "siglip": {"gelu": "tanh"},
    "siglip_vision_model": {"gelu": "tanh"},
}
# Names of Hugging Face and of timm.
_GELU = {"gelu": "erf", "gelu_erf": "erf", "gelu_python": "erf"}
_GELU |= dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_tanh"), "tanh")
POOLING = {"token": "token", "avg": "gap", "map": "map", "": "unpooled"}  # timm's
RENAMED = {"embed_dim": "hidden_size", "intermediate_size": "mlp_dim", "img_size": "image_size"}
RENAMED |= dict.fromkeys(("num_hidden_layers", "depth"), "num_layers")
RENAMED |= dict.fromkeys(("num_register_tokens", "num_reg_tokens", "reg_tokens"), "register_tokens")
RENAMED |= {"num_attention_heads": "num_heads", "layer_norm_eps": "layer_norm_epsilon"}
_DEFAULTS = {n: p.default for n, p in inspect.signature(VisionTransformer).parameters.items()}


def json_beside(path: str | os.PathLike, name: str) -> dict[str, Any] | None:
    """Returns the object in a JSON file beside a checkpoint, or None if there is no file.

    Raises CheckpointError if it is damaged.
    """
    file = Path(path).with_name(name)
    if not file.exists():
        return None
    with reading(file):
        found = json.loads(file.read_text())
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, received {type(found).__name__}")
        return found


def stated_grid(config: Mapping[str, Any], arrays: Mapping[str, Any]) -> Grid | None:
    """Returns the (rows, columns) of patches that a config.json states.

    One number is the side of a square, where the table of positions is of as many patches.
    """
    entries = [
        array.shape[-2]
        for name, array in arrays.items()
        if ("pos_embed" in name or "position_embedding" in name) and np.ndim(array) in (2, 3)
    ]

    def fits(grid):
        return any(0 <= count - grid[0] * grid[1] <= 2 for count in entries)

    tower = config.get("vision_config")
    of_hugging_face = tower if isinstance(tower, dict) else config
    image, patch = of_hugging_face.get("image_size"), of_hugging_face.get("patch_size")
    if isinstance(image, list | int) and isinstance(patch, list | int):
        sides = [*_pair(image), *_pair(patch)]
        if len(sides) != 4 or not all(isinstance(side, int) and side > 0 for side in sides):
            raise ValueError(f"image_size={image} and patch_size={patch} are no grid")
        grid = sides[0] // sides[2], sides[1] // sides[3]
        return grid if isinstance(image, list) or fits(grid) else None
    # Under any prefix.
    kernels = (a for name, a in arrays.items() if name.endswith("patch_embed.proj.weight"))
    patches = np.shape(next(kernels, 0))[2:]
    if len(patches) != 2:
        return None
    # timm states the size of pre-training too, which the table need not have.
    of_input = (config.get("pretrained_cfg") or config).get("input_size")
    sizes = (config.get("model_args") or {}).get("img_size"), of_input
    for size in (_pair(size)[-2:] for size in sizes):
        if len(size) == 2 and all(isinstance(side, int) for side in size):
            rows, columns = (side // at for side, at in zip(size, patches, strict=True))
            if fits((rows, columns)):
                return rows, columns
    return None


def _pair(sides):
    return sides if isinstance(sides, list) else [sides] * 2


def stated_head(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the class names and the activation that a config.json states whole."""
    labels = config.get("id2label") or dict(enumerate(config.get("label_names") or ()))
    labels = {int(index): " ".join(str(name).split()) for index, name in labels.items()}
    names: tuple[Any, ...] = tuple(labels.get(index) for index in range(len(labels)))
    # transformers calls classes that have no names LABEL_0 and so on.
    if not all(names) or "LABEL_0" in names:
        names = ()
    for name in names:
        require_class_name(name, CONFIG)
    several = config.get("problem_type") == "multi_label_classification"
    return {"class_names": names, "activation": "sigmoid" if several else None}


def stated_license(path: str | os.PathLike, config: Mapping[str, Any]) -> str | None:
    """Returns the license in timm's config.json or the README.md beside a file, or None."""
    stated, card = config.get("pretrained_cfg"), Path(path).with_name("README.md")
    found = stated.get("license") if isinstance(stated, Mapping) else None
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    header = text.split("\n---", 1)[0] if text.startswith("---") else ""
    lines = dict(re.findall(r"^(license|license_name): *[\"']?([^\"'\n]+)", header, re.M))
    found = lines.get("license_name") or lines.get("license") or found
    usual = {name.lower(): name for name in PERMISSIVE}
    return found and usual.get(str(found).lower(), str(found))


def arguments_of_model(name: str) -> dict[str, Any]:
    """Returns every argument of `VisionTransformer` of a model's name."""
    return _DEFAULTS | arguments_of(name)[1]


def stated_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config.json's keys, those of our arguments under our names.

    Raises CheckpointError for an activation that is no GELU.
    """
    architecture, tower = str(config.get("architecture")), config.get("vision_config")
    own = config.get("model_args")
    own = dict(own) if isinstance(own, Mapping) else {}
    if architecture in TIMM_NAMES:
        stated = arguments_of_model(architecture) | own
        if own.get("pos_embed") == "none":
            stated["position_embedding"] = "none"
    else:
        config = tower if isinstance(tower, Mapping) else config
        renamed = {"num_attention_heads", "layer_norm_eps"} & config.keys()
        stated = {**config, **own, **{RENAMED[name]: config[name] for name in renamed}}
    theta = own.get("rope_temperature", config.get("rope_theta", THETA))
    if theta != THETA:
        raise CheckpointError(
            f"Expected rotary positions of rope_theta={THETA:g}. The file's configuration says "
            f"{theta!r}. Nothing was loaded."
        )
    # A configuration of transformers may leave out what is its default.
    gated = bool(config.get("use_gated_mlp"))
    activation = own.get("act_layer", config.get("hidden_act", "gelu" if gated else None))
    if activation is not None:
        known = {"silu": "erf"} if gated else _GELU
        if not isinstance(activation, str) or activation not in known:
            raise CheckpointError(
                f"Expected the activation to be {'one that gates' if gated else 'a GELU'}, one of "
                f"{', '.join(known)}. The file's configuration says {activation!r}. Nothing was "
                "loaded."
            )
        stated["gelu"] = known[activation]
    return stated


def stated_normalization(
    path: Path,
    config: Mapping[str, Any],
    mean: Sequence[float] | float | None,
    std: Sequence[float] | float | None,
) -> np.ndarray:
    """Returns the (2, 3) mean and std of a PyTorch-format file: the caller's, or its folder's.

    There timm's config.json states it, or Hugging Face's preprocessor_config.json. Raises
    CheckpointError if they are not known, or are no three numbers.
    """
    if mean is not None or std is not None:
        return _checked(mean, std, "the arguments `mean` and `std`", path)
    config = config.get("pretrained_cfg", config)
    if isinstance(config, Mapping) and {"mean", "std"} & set(config):
        return _checked(config.get("mean"), config.get("std"), CONFIG, path)
    stated = json_beside(path, PREPROCESSOR)
    if stated is None:
        stated = (json_beside(path, "processor_config.json") or {}).get("image_processor")
    if not isinstance(stated, Mapping):
        raise CheckpointError(
            f"{path} does not tell how the images of its training were normalized, and models here "
            "take [-1, 1]. Put timm's config.json (with `pretrained_cfg`) or Hugging Face's "
            f"{PREPROCESSOR} beside the file, or pass load_checkpoint(..., mean=(r, g, b), "
            "std=(r, g, b)) in units of [0, 1]: ImageNet's are mean=(0.485, 0.456, 0.406), "
            "std=(0.229, 0.224, 0.225); files for [-1, 1] have 0.5 for all. Nothing was loaded."
        )
    if stated.get("do_flip_channel_order"):
        raise CheckpointError(
            f"Expected a model of red, green and blue. {PREPROCESSOR} beside {path} flips the "
            "order of the channels. Nothing was loaded."
        )
    mean, std = [0.0] * 3, [1.0] * 3
    if stated.get("do_normalize", True):
        mean, std = stated.get("image_mean"), stated.get("image_std")
    factor = stated.get("rescale_factor", 1 / 255) if stated.get("do_rescale", True) else 1.0
    if not isinstance(factor, (int, float)) or not factor > 0:
        raise CheckpointError(
            f"Expected a positive `rescale_factor` in {PREPROCESSOR} beside {path}. "
            f"Received: {factor!r}. Nothing was loaded."
        )
    # They normalize pixels of 0 to 255, times the factor; 1 / 255 in decimals is not exact.
    return _checked(mean, std, PREPROCESSOR, path, round(255 * factor, 9))


def _checked(mean, std, origin, path, unit=1.0):
    try:
        # One number is that of all three colors.
        values = np.array([[v] * 3 if np.ndim(v) == 0 else v for v in (mean, std)], np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    values /= unit
    in_range = values.shape == (2, 3) and np.isfinite(values).all() and values.max() <= 1
    if not in_range or values[1].min() <= 0:
        raise CheckpointError(
            f"{path} cannot be loaded so. Expected in {origin} a mean and a positive std of red, "
            f"green and blue, in units of [0, 1]. Received: mean={mean!r}, std={std!r}. Divide "
            "values of 0..255 by 255. Nothing was loaded."
        )
    return values
