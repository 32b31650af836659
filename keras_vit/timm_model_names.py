"""timm's names of models that are ours, as data.

Loading folds LayerScale and positions without class token, which DeiT III, DINOv2 and FlexiViT
have, into the weights.
"""

from typing import Any

_SIZES = {
    "tiny": "Ti",
    "small": "S",
    "medium": "M",
    "base": "B",
    "large": "L",
    "so400m": "So400m",
    "huge": "H",
    "giant": "g",
    "giantopt": "g-opt",
}

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
# Those of SigLIP alone have the exact GELU, as timm reads them; those of SigLIP 2 alone do not.
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
_FLEXIVIT = (("small", 16, (240,)), ("base", 16, (240,)), ("large", 16, (240,)))
_FAMILIES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("vit_{}_patch{}_{}", _VIT, {}),
    ("deit_{}_patch{}_{}", _DEIT, {}),
    ("deit3_{}_patch{}_{}", _DEIT3, {}),
    ("vit_{}_patch{}_dinov2", _DINOV2, {}),
    ("vit_{}_patch{}_reg4_dinov2", _DINOV2, {"register_tokens": 4}),
    ("vit_{}_patch{}_siglip_{}", _SIGLIP, {"classifier": "map"}),
    ("vit_{}_patch{}_siglip_{}", _SIGLIP_2, {"classifier": "map", "gelu": "tanh"}),
    ("vit_{}_patch{}_siglip_gap_{}", _SIGLIP, {"classifier": "gap"}),
    ("vit_{}_patch{}_siglip_gap_{}", _SIGLIP_2, {"classifier": "gap", "gelu": "tanh"}),
    ("flexivit_{}", _FLEXIVIT, {}),
)

# {timm's name: (ours, pixels, further arguments)}; every GELU is exact unless they say otherwise.
TIMM_NAMES: dict[str, tuple[str, int, dict[str, Any]]] = {
    template.format(size, patch, pixels): (f"ViT-{_SIZES[size]}/{patch}", pixels, arguments)
    for template, table, arguments in _FAMILIES
    for size, patch, image_sizes in table
    for pixels in image_sizes
}
