"""Names of published checkpoints, their addresses, and their copies on this machine."""

import os
import re
from pathlib import Path

from keras_vit.checkpoints.download import cache_directory, download

BUCKET = "https://storage.googleapis.com"

# The files of each folder, as named without ".npz".
_VIT = r"(R\d*\+)?ViT-(Ti|S|B|L|H)_\d+(-224)?"
_AUGREG_MODEL = r"(?:R\d*_)?(?:Ti|S|B|L)_\d+"
AUGREG = re.compile(
    rf"(?P<model>{_AUGREG_MODEL})-(?P<dataset>i1k|i21k)-(?P<epochs>\d+)ep"
    r"-lr_(?P<lr>[\d.]+)-aug_(?P<aug>none|light[012]|medium[12]|strong[12])"
    r"-wd_(?P<wd>0\.03|0\.1)-do_(?P<do>0\.0|0\.1)-sd_(?P<sd>0\.0|0\.1)"
    r"(?:--(?P<adapt_dataset>[a-z0-9_]+)-steps_(?P<adapt_steps>\d+)k"
    r"-lr_(?P<adapt_lr>[\d.]+)-res_(?P<adapt_resolution>\d+))?"
)
_BIT = r"BiT-[SM]-R(50|101|152|200)x[1234](-ILSVRC2012)?"

FOLDERS = {
    "imagenet21k": ("vit_models/imagenet21k", re.compile(_VIT)),
    "imagenet21k+imagenet2012": ("vit_models/imagenet21k+imagenet2012", re.compile(_VIT)),
    "augreg": ("vit_models/augreg", AUGREG),
    "sam": ("vit_models/sam", re.compile(_VIT)),
    "gsam": ("vit_models/gsam", re.compile(_VIT)),
    "bit": ("bit_models", re.compile(_BIT)),
    "bit/vtab": (
        "bit_models/vtab",
        re.compile(r"BiT-M-R(50|101|152)x[1234]-run[012]-[a-z0-9_.()-]+"),
    ),
}

# AugReg's best pre-training on ImageNet-21k of each model, by its validation accuracy
# there, and the end of the name of its best fine-tuning to ImageNet at 384 pixels.
RECOMMENDED = {
    "Ti_16": ("aug_none-wd_0.03-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "S_32": ("aug_none-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "S_16": ("aug_light1-wd_0.03-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "B_32": ("aug_light1-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "B_16": ("aug_medium1-wd_0.1-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "L_16": ("aug_strong1-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "R_Ti_16": ("aug_none-wd_0.03-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "R26_S_32": ("aug_light1-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "R50_L_32": ("aug_medium1-wd_0.1-do_0.1-sd_0.1", "lr_0.01-res_384"),
}


EXAMPLES = (
    "imagenet21k/ViT-B_16",
    "imagenet21k+imagenet2012/ViT-B_16-224",
    "augreg/B_16",
    "augreg/B_16-imagenet2012",
    "augreg/S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0",
    "sam/ViT-B_16",
    "bit/BiT-M-R50x1",
)


def find_checkpoint(name_or_path: str | os.PathLike) -> Path:
    """Returns the path of a checkpoint, which is downloaded first if it is a published name.

    Args:
        name_or_path: the path of an existing file or directory, or a name that
            `url_of` knows.

    Raises:
        FileNotFoundError: if it is neither.
        DownloadError: if the download fails; the message names the address and
            where to put a copy.
    """
    if Path(name_or_path).exists():
        return Path(name_or_path)
    try:
        url = url_of(str(name_or_path))
    except ValueError as error:
        raise FileNotFoundError(f"There is no file {str(name_or_path)!r}. {error}") from None
    folder = str(name_or_path).rpartition("/")[0]
    return download(url, cache_directory() / folder / url.rpartition("/")[2])


def url_of(name: str) -> str:
    """Returns the address of a published checkpoint.

    Args:
        name: "imagenet21k/ViT-B_16", "imagenet21k+imagenet2012/ViT-B_16-224",
            "sam/ViT-B_16", "gsam/ViT-B_16", "bit/BiT-M-R50x1",
            "bit/vtab/BiT-M-R50x1-run0-dtd", "augreg/" with a name of AugReg's index
            ("augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"), or
            "augreg/B_16" and "augreg/B_16-imagenet2012" for the recommended ones.
            AugReg's models may also be spelled as the others' ("augreg/ViT-B_16",
            "augreg/R26+ViT-S_32").

    Raises:
        ValueError: if no checkpoint is published under such a name.
    """
    folder, _, file = name.removesuffix(".npz").rpartition("/")
    if folder == "augreg":
        file = _expand(file.replace("+", "_").replace("ViT-", ""))
    path, grammar = FOLDERS.get(folder, ("", None))
    if grammar is None or not grammar.fullmatch(file):
        raise ValueError(
            f"Expected the name of a published checkpoint, such as {', '.join(EXAMPLES)}. "
            f"Received: {name!r}"
        )
    return f"{BUCKET}/{path}/{file}.npz"


def _expand(file):
    model = file.removesuffix("-imagenet2012")
    if model not in RECOMMENDED:
        return file
    regularization, adapted = RECOMMENDED[model]
    pretrained = f"{model}-i21k-300ep-lr_0.001-{regularization}"
    return pretrained if file == model else f"{pretrained}--imagenet2012-steps_20k-{adapted}"
