"""The arguments of models, checked: ints of Python or of NumPy, choices, sizes, dtypes."""

import math
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from keras_vit.layers.mlp import MLPS
from keras_vit.layers.position_embeddings_2d import POSITION_EMBEDDINGS
from keras_vit.type_hints import ImageSize

CLASS_TOKENS = {"token": 1, "token_gap": 1, "distilled": 2}
# The longest side of a JPEG is shorter.
IMAGE_SIZE_LIMIT = 2**16
# A greater number would run out of memory while Keras makes the layers.
LAYERS_LIMIT = 2**12
OPTIONAL = ("num_classes", "representation_size", "resnet", "decoder_heads", "flash_attention")


def _require(condition, value):
    if not condition:
        raise ValueError
    return value


def _int(value, least=1, greatest=2**31 - 1):
    is_int = not isinstance(value, bool | np.bool_)
    return _require(is_int and least <= operator.index(value) <= greatest, operator.index(value))


_layers = partial(_int, greatest=LAYERS_LIMIT)


def _units_per_stage(num_layers):
    return tuple(map(_layers, num_layers))


def _image_size(image_size):
    side = partial(_int, greatest=IMAGE_SIZE_LIMIT - 1)
    if not np.ndim(image_size):
        return side(image_size)
    return _require(len(image_size) == 2, tuple(map(side, image_size)))


def _resnet(resnet):
    _require("num_layers" in resnet and not set(resnet) - {"num_layers", "width_factor"}, resnet)
    num_layers = _units_per_stage(resnet["num_layers"])
    return {"num_layers": num_layers, "width_factor": resnet.get("width_factor", 1)}


def _color(color):
    red, green, blue = (_require(-1 <= float(each) <= 1, float(each)) for each in color)
    return red, green, blue


def _one_of(*choices):
    return f"be one of {choices}", lambda value: _require(value in choices, value)


# For each argument: the rule, and a function that returns the value to use or raises an error.
Check = tuple[str, Callable[[Any], Any]]
_SIZE: Check = (f"be a positive int, at most {2**31 - 1}", _int)
_RATE: Check = ("lie in [0, 1)", lambda value: _require(0 <= value < 1, value))
_POSITIVE: Check = ("be a positive number", lambda value: _require(0 < value < math.inf, value))
_FLAG: Check = ("be True or False", lambda value: _require(value in (False, True), bool(value)))
_PIXELS = "be a positive int or a (height, width) pair of them, in pixels"
_UNITS_PER_STAGE: Check = (f"be positive ints, at most {LAYERS_LIMIT}", _units_per_stage)
CHECKS: dict[str, Check] = {
    "image_size": (f"{_PIXELS}, below {IMAGE_SIZE_LIMIT}", _image_size),
    **dict.fromkeys(("patch_size", "hidden_size", "mlp_dim", "num_heads", "num_groups"), _SIZE),
    **dict.fromkeys(("in_channels", "representation_size"), _SIZE),
    "num_layers": (f"be a positive int, at most {LAYERS_LIMIT}", _layers),
    "num_classes": ("be a positive int, or None for a model without head", _int),
    "register_tokens": ("be an int that is not negative", partial(_int, least=0)),
    "classifier": _one_of(*CLASS_TOKENS, "gap", "map", "unpooled"),
    "resnet": ('be {"num_layers": (...), "width_factor": int}', _resnet),
    "position_embedding": _one_of("none", *POSITION_EMBEDDINGS, "relative", "rope_2d"),
    "position_placement": _one_of("stem", "every", "shared"),
    "attention": _one_of("global", "axial"),
    "mlp": _one_of(*MLPS),
    **dict.fromkeys(("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"), _RATE),
    **dict.fromkeys(("layer_norm_epsilon", "width_factor"), _POSITIVE),
    "head_bias_init": ("be a finite number", lambda value: _require(abs(value) < math.inf, value)),
    "remat": _FLAG,
    "flash_attention": (f"{_FLAG[0]}, or None where it decides for itself", _FLAG[1]),
    "decoder": _one_of("mask", "linear"),
    "decoder_layers": (f"be a positive int, at most {LAYERS_LIMIT}", _layers),
    "decoder_heads": _SIZE,
    "padding_color": ("be (red, green, blue), numbers in [-1, 1]", _color),
}


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a model's constructor, each checked, and all together.

    Of its `locals()`, `name`, `trainable` and `dtype` are left out. Raises ValueError if one is
    out of its range, or two contradict each other.
    """
    left_out = {"self", "__class__", "name", "trainable", "dtype"}
    found = {name: value for name, value in arguments.items() if name not in left_out}
    is_transformer = "hidden_size" in found
    own = {} if is_transformer else {"num_layers": _UNITS_PER_STAGE}
    for name, (expected, convert) in {**CHECKS, **own}.items():
        value = found.get(name)
        if name not in found or (value is None and name in OPTIONAL):
            continue
        try:
            found[name] = convert(value)
        except (TypeError, ValueError) as error:
            message = f"`{name}` must {expected}. Received: {name}={value!r}"
            raise ValueError(message) from error
    if is_transformer:
        _check_together(found)
    return found


def _check_together(arguments):
    """Raises ValueError if two arguments of a `VisionTransformer` contradict each other."""
    axial, registers = arguments["attention"] == "axial", arguments["register_tokens"]
    relative = arguments["position_embedding"] == "relative"
    token, stem = arguments["classifier"], arguments["position_placement"] == "stem"
    if arguments["hidden_size"] % arguments["num_heads"]:
        message = "`hidden_size` must be a multiple of `num_heads`."
        names = ["hidden_size", "num_heads"]
    elif axial and token in CLASS_TOKENS:
        message = 'Axial attention has no class token: use classifier="gap", "map" or "unpooled".'
        names = ["classifier"]
    elif token == "distilled" and (relative or arguments["representation_size"]):
        message = (
            'classifier="distilled" has two linear heads on two class tokens: it takes no hidden '
            "layer before them, and no relative positions."
        )
        names = ["representation_size", "position_embedding"]
    elif arguments["position_embedding"] == "rope_2d" and (
        axial or not stem or arguments["hidden_size"] // arguments["num_heads"] % 4
    ):
        message = (
            "Rotary positions turn channels by row and column in every block: they need global "
            'attention, position_placement="stem" and heads of a multiple of 4 channels.'
        )
        names = ["attention", "position_placement", "hidden_size", "num_heads"]
    elif registers and (axial or relative or not stem):
        message = (
            "Register tokens have no position in the image: they need global attention, and "
            "positions that are none or added at the stem."
        )
        names = ["attention", "position_placement", "position_embedding"]
    elif arguments["flash_attention"] and (relative or arguments["attention_dropout_rate"]):
        message = (
            "A fused kernel has neither relative positions nor dropout of probabilities: use "
            "flash_attention=None, or leave them out."
        )
        names = ["flash_attention", "position_embedding", "attention_dropout_rate"]
    else:
        return
    received = ", ".join(f"{name}={arguments[name]!r}" for name in names)
    raise ValueError(f"{message} Received: {received}")


def as_height_width(image_size: ImageSize) -> tuple[int, int]:
    """Returns (height, width) in pixels from a positive int or a pair; else raises ValueError."""
    size = checked({"image_size": image_size})["image_size"]
    return (size, size) if isinstance(size, int) else size
