"""The arguments of a model by its name: Table 1 and its relatives, as data.

A name is a size and a patch size in pixels, "ViT-B/16"; a hybrid puts its ResNet in front,
"R50+ViT-B/16", where the number after the slash is the stride of the whole, as in the paper.
"""

import re
from typing import Any

from keras_vit.name_suggestions import did_you_mean

# timm's names of models that are ours. Loading folds LayerScale and positions without class token,
# which DeiT III, DINOv2 and FlexiViT have, into the weights.
_TIMM_SIZES = {"tiny": "Ti", "small": "S", "medium": "M", "base": "B", "large": "L", "huge": "H"}
_TIMM_SIZES |= {"so400m": "So400m", "giant": "g", "giantopt": "g-opt"}
_TIMM_SIZES |= {"small_plus": "S+", "huge_plus": "H+", "7b": "7B"}

# The size, the patch size, the image sizes.
_VIT = (
    ("tiny", 16, (224, 384)),
    ("small", 8, (224,)),
    ("small", 16, (224, 384)),
    ("small", 32, (224, 384)),
    ("base", 8, (224,)),
    ("base", 16, (224, 384)),
    ("base", 32, (224, 384)),
    ("large", 14, (224,)),
    ("large", 16, (224, 384)),
    ("large", 32, (224, 384)),
    ("huge", 14, (224,)),
    ("giant", 14, (224,)),
)
_DEIT = (("tiny", 16, (224,)), ("small", 16, (224,)), ("base", 16, (224, 384)))
_DEIT3 = (
    ("small", 16, (224, 384)),
    ("medium", 16, (224,)),
    ("base", 16, (224, 384)),
    ("large", 16, (224, 384)),
    ("huge", 14, (224,)),
)
# SigLIP's models have the exact GELU, as timm reads them; models of SigLIP 2 alone do not.
_SIGLIP = (
    ("base", 16, (224, 256, 384, 512)),
    ("large", 16, (256, 384)),
    ("so400m", 14, (224, 378, 384)),
)
_SIGLIP_2 = (
    ("base", 32, (256,)),
    ("large", 16, (512,)),
    ("so400m", 16, (256, 384, 512)),
    ("giantopt", 16, (256, 384)),
)


_DINOV2 = (("small", 14, (518,)), ("base", 14, (518,)), ("large", 14, (518,)))
_DINOV2_GIANT = (("giant", 14, (518,)),)
_GIANT = {"hidden_size": 1536, "mlp_dim": 4096, "num_heads": 24, "mlp": "swiglu"}
# timm's own output is the mean of the patches: half of classifier="token_gap". Names that end with
# _qkvb are of files that hold the biases of queries and values.
_DINOV3 = tuple((n, 16, (256,)) for n in ("small", "small_plus", "base", "large", "huge_plus"))
_ROTARY = {"position_embedding": "rope_2d", "register_tokens": 4, "layer_norm_epsilon": 1e-5}
_FLEXIVIT = (("small", 16, (240,)), ("base", 16, (240,)), ("large", 16, (240,)))
_FAMILIES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("vit_{}_patch{}_{}", _VIT, {}),
    ("deit_{}_patch{}_{}", _DEIT, {}),
    ("deit_{}_distilled_patch{}_{}", _DEIT, {"classifier": "distilled"}),
    ("deit3_{}_patch{}_{}", _DEIT3, {}),
    ("vit_{}_patch{}_dinov2", _DINOV2, {}),
    ("vit_{}_patch{}_reg4_dinov2", _DINOV2, {"register_tokens": 4}),
    ("vit_{}_patch{}_dinov2", _DINOV2_GIANT, _GIANT),
    ("vit_{}_patch{}_reg4_dinov2", _DINOV2_GIANT, _GIANT | {"register_tokens": 4}),
    ("vit_{}_patch{}_dinov3", (*_DINOV3, ("7b", 16, (256,))), _ROTARY),
    ("vit_{}_patch{}_dinov3_qkvb", _DINOV3, _ROTARY),
    ("vit_{}_patch{}_siglip_{}", _SIGLIP, {"classifier": "map"}),
    ("vit_{}_patch{}_siglip_{}", _SIGLIP_2, {"classifier": "map", "gelu": "tanh"}),
    ("vit_{}_patch{}_siglip_gap_{}", _SIGLIP, {"classifier": "gap"}),
    ("vit_{}_patch{}_siglip_gap_{}", _SIGLIP_2, {"classifier": "gap", "gelu": "tanh"}),
    ("flexivit_{}", _FLEXIVIT, {}),
)

# {timm's name: (ours, pixels, further arguments)}; every GELU is exact unless they say otherwise.
TIMM_NAMES: dict[str, tuple[str, int, dict[str, Any]]] = {
    template.format(size, patch, pixels): (f"ViT-{_TIMM_SIZES[size]}/{patch}", pixels, arguments)
    for template, table, arguments in _FAMILIES
    for size, patch, image_sizes in table
    for pixels in image_sizes
}


SIZES: dict[str, dict[str, Any]] = {
    "Ti": {"num_layers": 12, "hidden_size": 192, "mlp_dim": 768, "num_heads": 3},
    "S": {"num_layers": 12, "hidden_size": 384, "mlp_dim": 1536, "num_heads": 6},
    "M": {"num_layers": 12, "hidden_size": 512, "mlp_dim": 2048, "num_heads": 8},
    "B": {"num_layers": 12, "hidden_size": 768, "mlp_dim": 3072, "num_heads": 12},
    "L": {"num_layers": 24, "hidden_size": 1024, "mlp_dim": 4096, "num_heads": 16},
    "So400m": {"num_layers": 27, "hidden_size": 1152, "mlp_dim": 4304, "num_heads": 16},
    "H": {"num_layers": 32, "hidden_size": 1280, "mlp_dim": 5120, "num_heads": 16},
    "g": {"num_layers": 40, "hidden_size": 1408, "mlp_dim": 6144, "num_heads": 16},
    "g-opt": {"num_layers": 40, "hidden_size": 1536, "mlp_dim": 6144, "num_heads": 16},
    "7B": {"num_layers": 40, "hidden_size": 4096, "mlp_dim": 8192, "num_heads": 32},
}
# DINOv3's that have gated MLPs.
SIZES |= {"S+": SIZES["S"], "H+": SIZES["H"] | {"num_heads": 20}}
SIZES |= {size: SIZES[size] | {"mlp": "swiglu"} for size in ("S+", "H+", "7B")}

# The ResNet and the patch size on its feature map. Stage 4 of a stride-16 hybrid
# is moved into stage 3, which keeps the number of units and quadruples the tokens.
# AugReg's "R+ViT-Ti/16" has stride 32 in fact: the root alone halves twice.
HYBRIDS = {
    "R+ViT-Ti/16": ("Ti", (), 8),
    "R26+ViT-S/32": ("S", (2, 2, 2, 2), 1),
    "R26+ViT-B/32": ("B", (2, 2, 2, 2), 1),
    "R50+ViT-B/16": ("B", (3, 4, 9), 1),
    "R50+ViT-B/32": ("B", (3, 4, 6, 3), 1),
    "R50+ViT-L/16": ("L", (3, 4, 9), 1),
    "R50+ViT-L/32": ("L", (3, 4, 6, 3), 1),
}

RESNETS = {
    "BiT-R50x1": ((3, 4, 6, 3), 1),
    "BiT-R50x2": ((3, 4, 6, 3), 2),
    "BiT-R50x3": ((3, 4, 6, 3), 3),
    "BiT-R101x1": ((3, 4, 23, 3), 1),
    "BiT-R101x3": ((3, 4, 23, 3), 3),
    "BiT-R152x1": ((3, 8, 36, 3), 1),
    "BiT-R152x2": ((3, 8, 36, 3), 2),
    "BiT-R152x4": ((3, 8, 36, 3), 4),
    "BiT-R200x3": ((3, 24, 36, 3), 3),
}

# The patch sizes of published checkpoints and of the paper's experiments. Any other works too.
_PATCH_SIZES: dict[str, tuple[int, ...]] = {"Ti": (16, 32), "S": (16, 32), "M": (16,)}
_PATCH_SIZES |= {"B": (8, 16, 32), "L": (16, 32), "So400m": (14, 16), "H": (14,)}
_PATCH_SIZES |= {"g": (14,), "g-opt": (16,), "S+": (16,), "H+": (16,), "7B": (16,)}
PATCHED = tuple(f"ViT-{size}/{patch}" for size in SIZES for patch in _PATCH_SIZES[size])

AXIAL = ("Axial-ViT-B/16", "Axial-ViT-B/32")

# Wang et al.'s three widths, the baseline of appendix D.5. Their published weights are
# PyTorch pickles, and the paper's compute convention does not cover them.
AXIAL_RESNETS = {
    "AxialResNet-S": ((3, 4, 6, 3), 0.5),
    "AxialResNet-M": ((3, 4, 6, 3), 0.75),
    "AxialResNet-L": ((3, 4, 6, 3), 1),
}

NAMES = (*PATCHED, *HYBRIDS, *RESNETS, *AXIAL)
# With Wang et al.'s, and timm's names of the same models.
EVERY_NAME = (*NAMES, *AXIAL_RESNETS, *TIMM_NAMES)


def arguments_of(name: str) -> tuple[str, dict[str, Any]]:
    """Returns (class name, constructor arguments) of a model's name.

    Args:
        name: "ViT-B/16", "R50+ViT-B/16", "BiT-R50x1", "Axial-ViT-B/32", …, or timm's name of
            one of them, "deit_base_patch16_384", whose arguments have the `image_size`.

    Raises:
        ValueError: if the name is not known.
    """
    if not isinstance(name, str):
        raise ValueError(f'Expected a model\'s name, a str such as "ViT-B/16". Received: {name!r}')
    if name in RESNETS:
        num_layers, width_factor = RESNETS[name]
        arguments = {"num_layers": num_layers, "width_factor": width_factor}
        return "ResNetV2", {**arguments, "pool_padding": "zero"}
    if name in AXIAL_RESNETS:
        num_layers, width_factor = AXIAL_RESNETS[name]
        return "AxialResNet", {"num_layers": num_layers, "width_factor": width_factor}
    if name in HYBRIDS:
        size, num_layers, patch_size = HYBRIDS[name]
        resnet = {"num_layers": num_layers, "width_factor": 1}
        return "VisionTransformer", {**SIZES[size], "patch_size": patch_size, "resnet": resnet}
    if name in TIMM_NAMES:
        own, size, further = TIMM_NAMES[name]
        class_name, arguments = arguments_of(own)
        return class_name, {**arguments, "image_size": size, "gelu": "erf", **further}
    match = re.fullmatch(r"(Axial-)?ViT-([\w+-]+)/(\d+)", name)
    if not match or match[2] not in SIZES or int(match[3]) < 1:
        raise ValueError(
            f"{did_you_mean(name, EVERY_NAME)}Expected a model's name, one of "
            f"{', '.join((*NAMES, *AXIAL_RESNETS))}, or ViT with a size of {', '.join(SIZES)} "
            f"and any patch size. Received: {name!r}."
        )
    axial = {"attention": "axial", "classifier": "gap"} if match[1] else {}
    return "VisionTransformer", {**SIZES[match[2]], "patch_size": int(match[3]), **axial}
