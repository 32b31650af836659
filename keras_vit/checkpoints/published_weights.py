"""Names of published checkpoints, their addresses, and their copies on this machine."""

import fnmatch
import os
import re
from pathlib import Path

from keras_vit.checkpoints import published_weights_table
from keras_vit.checkpoints.download import cache_directory, download
from keras_vit.checkpoints.published_weights_table import TABLE, Published
from keras_vit.suggestions import did_you_mean

# The names of files, without ".npz".
_VIT = re.compile(r"(?P<model>(R\d*\+)?ViT-(Ti|S|B|L|H)_\d+)(-(?P<size>224))?")
_AUGREG_MODEL = r"(?:R\d*_)?(?:Ti|S|B|L)_\d+"
AUGREG = re.compile(
    rf"(?P<model>{_AUGREG_MODEL})-(?P<dataset>i1k|i21k)-(?P<epochs>\d+)ep"
    r"-lr_(?P<lr>[\d.]+)-aug_(?P<aug>none|light[012]|medium[12]|strong[12])"
    r"-wd_(?P<wd>0\.03|0\.1)-do_(?P<do>0\.0|0\.1)-sd_(?P<sd>0\.0|0\.1)"
    r"(?:--(?P<adapt_dataset>[a-z0-9_]+)-steps_(?P<adapt_steps>\d+)k"
    r"-lr_(?P<adapt_lr>[\d.]+)-res_(?P<adapt_resolution>\d+))?"
)
_BIT = re.compile(r"BiT-(?P<kind>[SM])-(?P<model>R(50|101|152|200)x[1234])(?P<tuned>-ILSVRC2012)?")
_BIT_VTAB = re.compile(r"BiT-M-R(50|101|152)x[1234]-run[012]-[a-z0-9_.()-]+")

# The folder in the bucket and the names of its files.
FOLDERS = {
    "imagenet21k": ("vit_models/imagenet21k", _VIT),
    "imagenet21k+imagenet2012": ("vit_models/imagenet21k+imagenet2012", _VIT),
    "augreg": ("vit_models/augreg", AUGREG),
    "sam": ("vit_models/sam", _VIT),
    "gsam": ("vit_models/gsam", _VIT),
    "bit": ("bit_models", _BIT),
    "bit/vtab": ("bit_models/vtab", _BIT_VTAB),
}

# The files without a row in the table that the authors' code and pages mention.
_BIT_MODELS = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")
LISTED = (
    *(f"imagenet21k/{m}" for m in ("R50+ViT-B_16", "R50+ViT-L_32", "R26+ViT-B_32")),
    *(f"imagenet21k/ViT-{m}" for m in ("B_8", "B_16", "B_32", "L_16", "L_32", "H_14")),
    "imagenet21k+imagenet2012/R50+ViT-B_16",
    *(f"imagenet21k+imagenet2012/ViT-{m}" for m in ("B_8", "B_16", "B_32", "L_16", "L_32")),
    *(f"imagenet21k+imagenet2012/ViT-{m}-224" for m in ("B_16", "L_16")),
    *(f"sam/ViT-{m}" for m in ("S_16", "L_16", "L_32")),
    *(f"bit/BiT-{k}-{m}{t}" for k in "SM" for m in _BIT_MODELS for t in ("", "-ILSVRC2012")),
)

# Folders of classifiers of ImageNet's 1,000 classes and their image sizes.
_CLASSIFIERS = {"imagenet21k+imagenet2012": 384, "sam": 224, "gsam": 224}
_IMAGENET = ("i1k", "imagenet2012")


def find_checkpoint(name_or_path: str | os.PathLike) -> Path:
    """Returns the path of a checkpoint, which is downloaded first if it is a published name.

    Args:
        name_or_path: the path of an existing file or directory, or a name that
            `url_of` knows.

    Raises:
        FileNotFoundError: if it is neither.
        DownloadError: if the download fails, or the file has not the size that it is published
            with; the message names the address and where to put a copy.
    """
    if Path(name_or_path).exists():
        return Path(name_or_path)
    try:
        url = url_of(str(name_or_path))
    except ValueError as error:
        raise FileNotFoundError(f"There is no file {str(name_or_path)!r}. {error}") from None
    name = _canonical(str(name_or_path))
    folder, _, last = name.rpartition("/")
    # Every file of the Hub has the same name.
    file = f"{last}.safetensors" if url.endswith(".safetensors") else url.rpartition("/")[2]
    row = TABLE.get(name)
    path = cache_directory() / folder / file
    return download(url, path, size_range=row.size_range if row else None)


def published(name_or_path: str | os.PathLike) -> Published | None:
    """Returns the row of a published checkpoint: its model, normalization, score and license.

    Args:
        name_or_path: as of `find_checkpoint`.

    Returns:
        A `Published`, or None for a path and for a name without a row in the table.
    """
    return None if Path(name_or_path).exists() else TABLE.get(_canonical(str(name_or_path)))


def list_weights(filter: str = "*") -> list[str]:
    """Returns the names of published checkpoints, for `weights=` and `load_checkpoint`.

    AugReg's index (`augreg/…-i21k-300ep-…`) and BiT's VTAB models have more.

    Args:
        filter: pattern of `fnmatch`, "*siglip2*" for example.

    Examples:
        >>> keras_vit.list_weights("timm/deit3_base*")
    """
    return sorted(fnmatch.filter((*TABLE, *LISTED), filter))


def url_of(name: str) -> str:
    """Returns the address of a published checkpoint.

    More names than `list_weights()` has are those of AugReg's index, whose models may also be
    spelled as the others' ("augreg/ViT-B_16"), "gsam/ViT-B_16" and "bit/vtab/BiT-M-R50x1-run0-dtd".

    Raises:
        ValueError: if no checkpoint is published under such a name.
    """
    canonical = _canonical(name)
    if canonical in TABLE:
        return TABLE[canonical].url
    folder, fields = _parsed(canonical)
    if fields is None:
        raise ValueError(
            f"{did_you_mean(name, list_weights())}Expected the name of a published checkpoint, "
            f"such as augreg/B_16. Received: {name!r}. keras_vit.list_weights() lists them."
        )
    return f"{published_weights_table.BUCKET}/{FOLDERS[folder][0]}/{fields[0]}.npz"


def published_classifier(name: str | os.PathLike) -> Published | None:
    """Returns a checkpoint that classifies ImageNet's 1,000 classes, by a name as of `url_of`.

    Its model, image size and arguments are known; it is None if no checkpoint has this name, or it
    has other classes.
    """
    row = published(name)
    if row and row.score and row.measure == "top-1":
        return row
    folder, fields = _parsed(_canonical(str(name)))
    if fields is None:
        return None
    path = f"{FOLDERS[folder][0]}/{fields[0]}.npz"
    if folder == "bit" and (fields["kind"] == "S" or fields["tuned"]):
        return Published(path, f"BiT-{fields['model']}", 480 if fields["tuned"] else 224)
    if folder == "augreg" and (fields["adapt_dataset"] or fields["dataset"]) in _IMAGENET:
        *resnet, size, patch = fields["model"].split("_")
        model = f"{''.join(f'{part}+' for part in resnet)}ViT-{size}/{patch}"
        return Published(path, model, int(fields["adapt_resolution"] or 224))
    if folder in _CLASSIFIERS:
        size = int(fields["size"] or _CLASSIFIERS[folder])
        return Published(path, fields["model"].replace("_", "/"), size)
    return None


def _parsed(canonical):
    """Returns (the folder, the match of the file's name or None)."""
    folder, _, file = canonical.rpartition("/")
    return folder, FOLDERS[folder][1].fullmatch(file) if folder in FOLDERS else None


def _canonical(name):
    name = name.removesuffix(".npz")
    if name.startswith("augreg/"):
        return name.replace("+", "_").replace("ViT-", "")
    return name
