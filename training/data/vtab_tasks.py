"""The 19 tasks of VTAB-1k as a table (Zhai et al., 2019; section 4.1 and Table 9 of the paper).

Every task has the splits train, val, trainval, test, train800, val200 and train800val200
(the 1,000 examples of VTAB-1k). Select on val200 after training on train800; report `test`
after training on train800val200. The slices are absolute, as in the reference implementation:
`.take(1000)` or percentages name other examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class VtabTask(NamedTuple):
    """One row: a TFDS builder read with a rule of its own for labels and splits.

    Attributes:
        name: name in the registry, after `vtab/`.
        title: column of Table 9.
        group: "natural", "specialized" or "structured".
        builder: TFDS builder, with its configuration where it has several.
        version: versions that are accepted, as TFDS writes them.
        num_classes: number of classes of the label rule.
        sizes: number of examples of every native split.
        splits: which rule of `task_splits` makes the seven splits.
        label: name of a rule in `training.data.vtab_labels`, or the key of the label.
        pixel_scale: factor on the stored pixels (dSprites stores 0 and 1).
        flip: whether mirroring keeps the label true, our reading of BiT's section 3.3.
    """

    name: str
    title: str
    group: str
    builder: str
    version: str
    num_classes: int
    sizes: Mapping[str, int]
    splits: str
    label: str = "label"
    pixel_scale: int = 1
    flip: bool = True


_N, _SP, _ST = "natural", "specialized", "structured"
_CLEVR = {"train": 70_000, "validation": 15_000, "test": 15_000}
_DSPRITES = {"train": 737_280}
_NORB = {"train": 24_300, "test": 24_300}

TASKS = (
    VtabTask(
        "caltech101",
        "Caltech101",
        _N,
        "caltech101",
        "3.*.*",
        102,
        {"train": 3_060, "test": 6_084},
        "holdout_90",
    ),
    VtabTask(
        "cifar100",
        "CIFAR-100",
        _N,
        "cifar100",
        "3.*.*",
        100,
        {"train": 50_000, "test": 10_000},
        "holdout_90",
    ),
    VtabTask(
        "dtd",
        "DTD",
        _N,
        "dtd",
        "3.*.*",
        47,
        {"train": 1_880, "validation": 1_880, "test": 1_880},
        "native",
    ),
    VtabTask(
        "oxford_flowers102",
        "Flowers102",
        _N,
        "oxford_flowers102",
        "2.*.*",
        102,
        {"train": 1_020, "validation": 1_020, "test": 6_149},
        "native",
    ),
    VtabTask(
        "oxford_iiit_pet",
        "Pets",
        _N,
        "oxford_iiit_pet",
        "4.*.*",
        37,
        {"train": 3_680, "test": 3_669},
        "holdout_80",
    ),
    VtabTask(
        "sun397",
        "Sun397",
        _N,
        "sun397/tfds",
        "4.*.*",
        397,
        {"train": 76_128, "validation": 10_875, "test": 21_750},
        "native",
    ),
    VtabTask(
        "svhn",
        "SVHN",
        _N,
        "svhn_cropped",
        "3.*.*",
        10,
        {"train": 73_257, "test": 26_032, "extra": 531_131},
        "holdout_90",
        flip=False,
    ),
    VtabTask(
        "patch_camelyon",
        "Camelyon",
        _SP,
        "patch_camelyon",
        "2.*.*",
        2,
        {"train": 262_144, "validation": 32_768, "test": 32_768},
        "native",
    ),
    VtabTask(
        "eurosat",
        "EuroSAT",
        _SP,
        "eurosat/rgb",
        "2.*.*",
        10,
        {"train": 27_000},
        "sixty_twenty_twenty",
    ),
    VtabTask(
        "resisc45",
        "Resisc45",
        _SP,
        "resisc45",
        "3.*.*",
        45,
        {"train": 31_500},
        "sixty_twenty_twenty",
    ),
    VtabTask(
        "diabetic_retinopathy",
        "Retinopathy",
        _SP,
        "diabetic_retinopathy_detection/btgraham-300",
        "3.*.*",
        5,
        {"sample": 10, "train": 35_126, "validation": 10_906, "test": 42_670},
        "native",
    ),
    VtabTask(
        "clevr_count",
        "Clevr-Count",
        _ST,
        "clevr",
        "3.*.*",
        8,
        _CLEVR,
        "clevr",
        label="clevr_count",
        flip=False,
    ),
    VtabTask(
        "clevr_distance",
        "Clevr-Dist",
        _ST,
        "clevr",
        "3.*.*",
        6,
        _CLEVR,
        "clevr",
        label="clevr_distance",
        flip=False,
    ),
    VtabTask(
        "dmlab",
        "DMLab",
        _ST,
        "dmlab",
        "2.*.*",
        6,
        {"train": 65_550, "validation": 22_628, "test": 22_735},
        "native",
        flip=False,
    ),
    VtabTask(
        "dsprites_location",
        "dSpr-Loc",
        _ST,
        "dsprites",
        "2.*.*",
        16,
        _DSPRITES,
        "eighty_ten_ten",
        label="dsprites_location",
        pixel_scale=255,
        flip=False,
    ),
    VtabTask(
        "dsprites_orientation",
        "dSpr-Ori",
        _ST,
        "dsprites",
        "2.*.*",
        16,
        _DSPRITES,
        "eighty_ten_ten",
        label="dsprites_orientation",
        pixel_scale=255,
        flip=False,
    ),
    VtabTask(
        "kitti_distance",
        "KITTI-Dist",
        _ST,
        "kitti",
        "3.*.*",
        4,
        {"train": 6_347, "validation": 423, "test": 711},
        "native",
        label="kitti_distance",
        flip=False,
    ),
    VtabTask(
        "smallnorb_azimuth",
        "sNORB-Azim",
        _ST,
        "smallnorb",
        "2.*.*",
        18,
        _NORB,
        "smallnorb",
        label="label_azimuth",
        flip=False,
    ),
    VtabTask(
        "smallnorb_elevation",
        "sNORB-Elev",
        _ST,
        "smallnorb",
        "2.*.*",
        9,
        _NORB,
        "smallnorb",
        label="label_elevation",
        flip=False,
    ),
)


def task_splits(rule: str, sizes: Mapping[str, int]) -> dict[str, str]:
    """Returns the seven split texts of a task, given the sizes of its native splits."""
    n = sizes["train"]

    def held_out(stop: int, end: int) -> dict[str, str]:
        return {
            "train": f"train[:{stop}]",
            "val": f"train[{stop}:{end}]",
            "trainval": f"train[:{end}]",
            "val200": f"train[{stop}:{stop + 200}]",
        }

    if rule == "native":
        parts = {
            "train": "train",
            "val": "validation",
            "trainval": "train+validation",
            "val200": "validation[:200]",
            "test": "test",
        }
    elif rule in ("holdout_90", "holdout_80"):
        parts = {**held_out(n * int(rule[-2:]) // 100, n), "test": "test"}
    elif rule == "clevr":
        # CLEVR's own test split comes without objects, so without labels.
        parts = {**held_out(n * 90 // 100, n), "test": "validation"}
    elif rule in ("sixty_twenty_twenty", "eighty_ten_ten"):
        first, second = (60, 80) if rule == "sixty_twenty_twenty" else (80, 90)
        stop, end = n * first // 100, n * second // 100
        parts = {**held_out(stop, end), "test": f"train[{end}:]"}
    elif rule == "smallnorb":
        parts = {
            "train": "train",
            "val": "test[:50%]",
            "trainval": "train+test[:50%]",
            "val200": "test[:200]",
            "test": "test[50%:]",
        }
    else:
        raise ValueError(f"Unknown rule of splits {rule!r}.")
    parts["train800"] = "train[:800]"
    parts["train800val200"] = f"train[:800]+{parts['val200']}"
    return parts
