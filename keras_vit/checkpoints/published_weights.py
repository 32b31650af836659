"""Published checkpoints with their model, normalization, license and score, as data.

Names are the publishers' own: an object of a Google bucket, or a repository of the Hugging Face
Hub. Where a number comes from:

* Parameters are the sum over the arrays' shapes, of the models as big_vision, timm and DeiT
  define them. They are not read from the files.
* Sizes in MiB, AugReg's, are those that the README of google-research/vision_transformer lists.
* Scores: AugReg's stand in that README, those of SigLIP 2, of better plain ViT and of DINOv2
  in their repositories' READMEs and configurations, DeiT's and DeiT III's in README_deit.md and
  README_revenge.md of facebookresearch/deit, SAM's and FlexiViT's in results-imagenet.csv of timm.
* Normalizations and licenses of the Hub's files are those of timm 1.0.31's configurations.
"""

import fnmatch
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_vit.variants import TIMM_NAMES

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
BUCKET = "https://storage.googleapis.com"
HUB = "https://huggingface.co"
APACHE = "Apache-2.0"
# Other licenses are told when their files are loaded.
PERMISSIVE = (APACHE, "MIT")
DINOV3_LICENSE = "dinov3-license"  # as the Hub calls it

MIB = 2**20
# The most that the headers of a safetensors file can add to its arrays.
HEADERS = MIB


@dataclass(frozen=True)
class Published:
    """A published checkpoint.

    Attributes:
        path: of the file in the bucket, or the repository of the Hub and the file in it.
        model: the name of our model that it fits, for `keras_vit.create_model`.
        image_size: int, in pixels, what its position embeddings and its score are for.
        arguments: of `create_model` for the published numbers, besides those.
        mean: (r, g, b) in units of [0, 1] that its images were normalized by; None if they
            are in [-1, 1].
        std: as `mean`.
        flexible: bool, whether its patches are resized as FlexiViT's.
        license: an SPDX identifier, or the Hub's name.
        parameters: int, of the model's arrays in the file, float32 each; None where it is not
            known how they are stored.
        mebibytes: int, the file's size where its publisher states it, else None.
        score: float, percent on ImageNet's validation images, or None where none is published.
        measure: what the score is: "top-1", "zero-shot", or "linear" (on frozen features; the
            classifier is not in the file).
    """

    path: str
    model: str
    image_size: int = 224
    arguments: Mapping[str, Any] = field(default_factory=dict)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    flexible: bool = False
    license: str = APACHE
    parameters: int | None = None
    mebibytes: int | None = None
    score: float | None = None
    measure: str = "top-1"

    @property
    def url(self) -> str:
        """The address of the file."""
        return f"{BUCKET if self.path.endswith('.npz') else HUB}/{self.path}"

    @property
    def size_range(self) -> tuple[int, int | None] | None:
        """The (least, most) bytes that the file can have, or None if that is not known.

        An archive may hold the state of an optimizer besides, of any size.
        """
        if self.mebibytes:
            return (self.mebibytes - 1) * MIB, (self.mebibytes + 1) * MIB
        if self.parameters:
            least = 4 * self.parameters
            return least, None if self.path.endswith(".npz") else least + HEADERS
        return None


def _hub(name, **facts):
    """Returns timm's name of a checkpoint, and its row with the model of that name."""
    model, size, arguments = TIMM_NAMES[name.partition(".")[0]]
    arguments = {"gelu": "erf", **arguments}
    path = f"timm/{name}/resolve/main/model.safetensors"
    return f"timm/{name}", Published(path, model, size, arguments, **{**IMAGENET, **facts})


def _big_vision(file, model, image_size, **facts):
    path = f"big_vision/{file}.npz"
    return f"big_vision/{file}", Published(path, model, image_size, **facts)


# Pre-training on ImageNet-21k and its best fine-tuning at 384 pixels: the model, the files'
# names after it, the pre-trained file's MiB, the fine-tuned one's top-1 accuracy.
RECOMMENDED = {
    "Ti_16": ("ViT-Ti/16", "aug_none-wd_0.03-do_0.0-sd_0.0", "lr_0.03", 37, 78.22),
    "S_32": ("ViT-S/32", "aug_none-wd_0.1-do_0.0-sd_0.0", "lr_0.01", 118, 79.58),
    "S_16": ("ViT-S/16", "aug_light1-wd_0.03-do_0.0-sd_0.0", "lr_0.03", 115, 83.73),
    "B_32": ("ViT-B/32", "aug_light1-wd_0.1-do_0.0-sd_0.0", "lr_0.01", 398, 83.59),
    "B_16": ("ViT-B/16", "aug_medium1-wd_0.1-do_0.0-sd_0.0", "lr_0.03", 391, 85.49),
    "L_16": ("ViT-L/16", "aug_strong1-wd_0.1-do_0.0-sd_0.0", "lr_0.01", 1243, 85.59),
    "R_Ti_16": ("R+ViT-Ti/16", "aug_none-wd_0.03-do_0.0-sd_0.0", "lr_0.03", 40, 75.40),
    "R26_S_32": ("R26+ViT-S/32", "aug_light1-wd_0.1-do_0.0-sd_0.0", "lr_0.01", 170, 83.85),
    "R50_L_32": ("R50+ViT-L/32", "aug_medium1-wd_0.1-do_0.1-sd_0.1", "lr_0.01", 1337, 85.99),
}

# timm's name, the parameters, the top-1 accuracy after ImageNet-1k and, of DeiT III, after
# ImageNet-21k as well.
DEIT = (
    ("deit_tiny_patch16_224", 5_717_416, 72.2, None),
    ("deit_small_patch16_224", 22_050_664, 79.9, None),
    ("deit_base_patch16_224", 86_567_656, 81.8, None),
    ("deit_base_patch16_384", 86_859_496, 82.9, None),
    ("deit_tiny_distilled_patch16_224", 5_910_800, 74.5, None),
    ("deit_small_distilled_patch16_224", 22_436_432, 81.2, None),
    ("deit_base_distilled_patch16_224", 87_338_192, 83.4, None),
    ("deit_base_distilled_patch16_384", 87_630_032, 85.2, None),
    ("deit3_small_patch16_224", 22_059_496, 81.4, 83.1),
    ("deit3_small_patch16_384", 22_205_416, 83.4, 84.8),
    ("deit3_medium_patch16_224", 38_849_512, 83.0, 84.5),
    ("deit3_base_patch16_224", 86_585_320, 83.8, 85.7),
    ("deit3_base_patch16_384", 86_877_160, 85.0, 86.7),
    ("deit3_large_patch16_224", 304_374_760, 84.9, 87.0),
    ("deit3_large_patch16_384", 304_763_880, 85.8, 87.7),
    ("deit3_huge_patch14_224", 632_126_440, 85.2, 87.2),
)

# The size, the parameters and the linear classifier's accuracy, without and with registers.
DINOV2 = (
    ("small", (22_056_192, 81.1), (22_057_344, 80.9)),
    ("base", (86_579_712, 84.5), (86_582_016, 84.6)),
    ("large", (304_367_616, 86.3), (304_370_688, 86.7)),
    ("giant", (1_136_479_232, 86.5), (1_136_483_840, 87.1)),
)

# DINOv3's images of satellites.
SATELLITES = {"mean": (0.430, 0.411, 0.296), "std": (0.213, 0.156, 0.143)}

MAE = (
    ("vit_base_patch16_224", 85_798_656),
    ("vit_large_patch16_224", 303_301_632),
    ("vit_huge_patch14_224", 630_764_800),
)

SIGLIP = (
    ("webli_en_b16_224_63724782", "ViT-B/16", 224),
    ("webli_en_b16_256_60500360", "ViT-B/16", 256),
    ("webli_en_b16_384_68578854", "ViT-B/16", 384),
    ("webli_en_b16_512_68580893", "ViT-B/16", 512),
    ("webli_en_l16_256_60552751", "ViT-L/16", 256),
    ("webli_en_l16_384_63634585", "ViT-L/16", 384),
    ("webli_en_so400m_224_57633886", "ViT-So400m/14", 224),
    ("webli_en_so400m_384_58765454", "ViT-So400m/14", 384),
    ("webli_i18n_b16_256_66117334", "ViT-B/16", 256),
)

SIGLIP_2 = (
    ("b32_256", "ViT-B/32", 256, 74.0),
    ("b16_224", "ViT-B/16", 224, 78.2),
    ("b16_256", "ViT-B/16", 256, 79.1),
    ("b16_384", "ViT-B/16", 384, 80.6),
    ("b16_512", "ViT-B/16", 512, 81.2),
    ("l16_256", "ViT-L/16", 256, 82.5),
    ("l16_384", "ViT-L/16", 384, 83.1),
    ("l16_512", "ViT-L/16", 512, 83.5),
    ("so400m14_224", "ViT-So400m/14", 224, 83.2),
    ("so400m14_384", "ViT-So400m/14", 384, 84.1),
    ("so400m16_256", "ViT-So400m/16", 256, 83.4),
    ("so400m16_384", "ViT-So400m/16", 384, 84.1),
    ("so400m16_512", "ViT-So400m/16", 512, 84.3),
    ("g-opt16_256", "ViT-g-opt/16", 256, 84.5),
    ("g-opt16_384", "ViT-g-opt/16", 384, 85.0),
)

# Scores are at 240 pixels, in patches of 16.
FLEXIVIT = (
    ("s_i1k", "ViT-S/16", 82.576),
    ("s_i1k_600ep", "ViT-S/16", 82.388),
    ("s_i1k_300ep", "ViT-S/16", 82.170),
    ("b_i1k", "ViT-B/16", 84.678),
    ("b_i1k_600ep", "ViT-B/16", 84.564),
    ("b_i1k_300ep", "ViT-B/16", 84.402),
    ("l_i1k", "ViT-L/16", 85.646),
    ("l_i1k_600ep", "ViT-L/16", 85.530),
    ("l_i1k_300ep", "ViT-L/16", 85.284),
    ("b_i21k_300ep", "ViT-B/16", None),
    ("b_i21k_1000ep", "ViT-B/16", None),
)

SAM = (("ViT-B_16", "ViT-B/16", 86_567_656, 80.246), ("ViT-B_32", "ViT-B/32", 88_224_232, 73.704))

BETTER_PLAIN = {"classifier": "gap", "position_embedding": "sincos_2d", "representation_size": 384}


def _rows():
    for name, (model, regularization, adapted, mebibytes, score) in RECOMMENDED.items():
        file = f"vit_models/augreg/{name}-i21k-300ep-lr_0.001-{regularization}"
        yield f"augreg/{name}", Published(f"{file}.npz", model, mebibytes=mebibytes)
        tuned = f"{file}--imagenet2012-steps_20k-{adapted}-res_384.npz"
        yield f"augreg/{name}-imagenet2012", Published(tuned, model, 384, score=score)
    for name, model, parameters, score in SAM:
        path = f"vit_models/sam/{name}.npz"
        yield f"sam/{name}", Published(path, model, parameters=parameters, score=score)
    for epochs, score in ((90, 76.5), (150, None), (300, None)):
        facts = {"arguments": BETTER_PLAIN, "parameters": 22_122_472, "score": score}
        yield _big_vision(f"vit_s16_i1k_{epochs}ep", "ViT-S/16", 224, **facts)
    for name, parameters, *scores in DEIT:
        for tag, score in zip(("fb_in1k", "fb_in22k_ft_in1k"), scores, strict=True):
            if score:
                yield _hub(f"{name}.{tag}", parameters=parameters, score=score)
    for size, *variants in DINOV2:
        for registers, (parameters, score) in zip(("", "reg4_"), variants, strict=True):
            name = f"vit_{size}_patch14_{registers}dinov2.lvd142m"
            yield _hub(name, parameters=parameters, score=score, measure="linear")
    for name in fnmatch.filter(TIMM_NAMES, "*_dinov3*"):
        model, facts = TIMM_NAMES[name][0], {"license": DINOV3_LICENSE, "measure": "linear"}
        if model != "ViT-7B/16":  # in several files
            yield _hub(f"{name}.lvd1689m", **facts)
        if model == "ViT-L/16":
            yield _hub(f"{name}.sat493m", **facts, **SATELLITES)
    for name, parameters in MAE:
        yield _hub(f"{name}.mae", parameters=parameters, license="CC-BY-NC-4.0")
    for file, model, size in SIGLIP:
        yield _big_vision(f"siglip/{file}", model, size, arguments={"classifier": "map"})
    for file, model, size, score in SIGLIP_2:
        facts = {"arguments": {"classifier": "map"}, "score": score, "measure": "zero-shot"}
        yield _big_vision(f"siglip2/siglip2_{file}", model, size, **facts)
    for file, model, score in FLEXIVIT:
        yield _big_vision(f"flexivit/flexivit_{file}", model, 240, flexible=True, score=score)


TABLE: dict[str, Published] = dict(_rows())


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


def published(name_or_path: str | os.PathLike) -> Published | None:
    """Returns the row of a published checkpoint: its model, normalization, score and license.

    Args:
        name_or_path: a path, or a name as of `url_of`.

    Returns:
        A `Published`, or None for a path and for a name without a row in the table.
    """
    return None if Path(name_or_path).exists() else TABLE.get(canonical_name(str(name_or_path)))


def list_weights(filter: str = "*") -> list[str]:
    """Returns the names of published checkpoints, for `weights=` and `load_checkpoint`.

    AugReg's index (`augreg/…-i21k-300ep-…`) and BiT's VTAB models have more.

    Args:
        filter: pattern of `fnmatch`, "*siglip2*" for example.

    Examples:
        >>> keras_vit.list_weights("timm/deit3_base*")
    """
    return sorted(fnmatch.filter((*TABLE, *LISTED), filter))


def url_of(name: str) -> str | None:
    """Returns the address of a published checkpoint, or None if there is none of that name.

    More names than `list_weights()` has are those of AugReg's index, whose models may also be
    spelled as the others' ("augreg/ViT-B_16"), "gsam/ViT-B_16" and "bit/vtab/BiT-M-R50x1-run0-dtd".
    """
    canonical = canonical_name(name)
    if canonical in TABLE:
        return TABLE[canonical].url
    folder, fields = _parsed(canonical)
    return f"{BUCKET}/{FOLDERS[folder][0]}/{fields[0]}.npz" if fields else None


def published_classifier(name: str | os.PathLike) -> Published | None:
    """Returns a checkpoint that classifies ImageNet's 1,000 classes, by a name as of `url_of`.

    Its model, image size and arguments are known; it is None if no checkpoint has this name, or it
    has other classes.
    """
    row = published(name)
    if row and row.score and row.measure == "top-1":
        return row
    folder, fields = _parsed(canonical_name(str(name)))
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


def canonical_name(name: str) -> str:
    """Returns a published name as the table spells it."""
    name = name.removesuffix(".npz")
    if name.startswith("augreg/"):
        return name.replace("+", "_").replace("ViT-", "")
    return name
