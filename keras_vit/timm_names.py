"""timm's names of models that are ours, as data.

Theirs is the function that ours is at inference: LayerScale and positions without class token,
which DeiT III, DINOv2 and FlexiViT have, are folded into the weights when they are loaded.
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


def _names(template, table, **arguments):
    for size, patch, image_sizes in table:
        for pixels in image_sizes:
            name = template.format(size=size, patch=patch, pixels=pixels)
            yield name, (f"ViT-{_SIZES[size]}/{patch}", pixels, arguments)


def _every():
    sized = "{size}_patch{patch}_{pixels}"
    yield from _names(f"vit_{sized}", _VIT)
    yield from _names(f"deit_{sized}", _DEIT)
    yield from _names(f"deit3_{sized}", _DEIT3)
    dinov2 = [(size, 14, (518,)) for size in ("small", "base", "large")]
    yield from _names("vit_{size}_patch{patch}_dinov2", dinov2)
    yield from _names("vit_{size}_patch{patch}_reg4_dinov2", dinov2, register_tokens=4)
    for infix, classifier in (("", "map"), ("gap_", "gap")):
        siglip = f"vit_{{size}}_patch{{patch}}_siglip_{infix}{{pixels}}"
        yield from _names(siglip, _SIGLIP, classifier=classifier)
        yield from _names(siglip, _SIGLIP_2, classifier=classifier, gelu="tanh")
    flexible = [(size, 16, (240,)) for size in ("small", "base", "large")]
    yield from _names("flexivit_{size}", flexible)


# {timm's name: (ours, pixels, further arguments)}; every GELU is exact unless they say otherwise.
TIMM_NAMES: dict[str, tuple[str, int, dict[str, Any]]] = dict(_every())
