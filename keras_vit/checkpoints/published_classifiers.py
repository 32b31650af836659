"""Published checkpoints that classify ImageNet's 1,000 classes: what their names say of them."""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_vit.checkpoints.published import published, url_of
from keras_vit.checkpoints.published_table import BUCKET


class PublishedClassifier(NamedTuple):
    """What is needed to use a published checkpoint.

    Attributes:
        model: name of its model, for `keras_vit.create_model`.
        image_size: in pixels, that it was trained for last.
        arguments: of `create_model`, besides those.
    """

    model: str
    image_size: int
    arguments: Mapping[str, Any] = {}


# Files without a row in the table whose head has these classes, with the size of images where
# the name does not say it.
_FILES = {
    "vit_models/imagenet21k+imagenet2012": (r"(?P<model>.+?)(-(?P<size>224))?", 384),
    "vit_models/sam": (r"(?P<model>.+)", 224),
    "vit_models/gsam": (r"(?P<model>.+)", 224),
    "vit_models/augreg": (
        r"(?P<model>[^-]+)-(?:i1k-(?!.*--)|.*--imagenet2012-).*?(-res_(?P<size>\d+))?",
        224,
    ),
    "bit_models": (r"(?P<model>BiT-(?:S-[^-]+|M-[^-]+(?=-ILSVRC2012)))(-ILSVRC2012)?", 224),
}
_FINE_TUNED_BIT = 480


def published_classifier(name: str | os.PathLike) -> PublishedClassifier | None:
    """Returns what a published name says, or None if it is none, or has other classes.

    Args:
        name: as `keras_vit.checkpoints.published.url_of` takes it.
    """
    row = published(name)
    if row and row.score and row.measure == "top-1":
        return PublishedClassifier(row.model, row.image_size, row.arguments)
    try:
        address = url_of(str(name))
    except ValueError:
        return None
    folder, _, file = address.removeprefix(f"{BUCKET}/").removesuffix(".npz").rpartition("/")
    grammar, image_size = _FILES.get(folder, ("", 0))
    match = re.fullmatch(grammar, file)
    if not grammar or not match:
        return None
    if file.endswith("-ILSVRC2012"):
        image_size = _FINE_TUNED_BIT
    return PublishedClassifier(
        _model_of(match["model"]), int(match.groupdict().get("size") or image_size)
    )


def _model_of(file: str) -> str:
    """Returns "ViT-B/16" of "ViT-B_16" or AugReg's "B_16", "BiT-R50x1" of "BiT-M-R50x1"."""
    if file.startswith("BiT-"):
        return re.sub("-[SM]-", "-", file)
    *resnet, size, patch = re.split(r"[_+]", file.replace("ViT-", ""))
    return f"{''.join(f'{name}+' for name in resnet)}ViT-{size}/{patch}"
