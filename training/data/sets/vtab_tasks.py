"""The 19 tasks of VTAB-1k (Zhai et al., 2019; section 4.1 and Table 9 of the paper).

They have the splits train, val, trainval, test, train800, val200 and train800val200 (the 1,000
examples). Select on val200 after training on train800; report `test` after training on
train800val200. The slices are absolute, as in the reference implementation: `.take(1000)` or
percentages name other examples.
"""

from collections.abc import Mapping
from typing import NamedTuple


class VtabTask(NamedTuple):
    """A TFDS builder read with a rule of its own for labels and splits.

    `name` follows `vtab/` in the table of data sets, `title` is the column of Table 9, `group`
    "natural", "specialized" or "structured", `splits` a rule of `named_splits`; the others are
    those of `DatasetSpec`.
    """

    name: str
    title: str
    group: str
    builder: str
    num_classes: int
    splits: str
    label: str = "label"

    @property
    def flip(self) -> bool:
        """Whether mirroring keeps the label true, our reading of BiT's section 3.3."""
        return self.group != "structured" and self.name != "svhn"


_N, _SP, _ST = "natural", "specialized", "structured"
_RETINOPATHY = "diabetic_retinopathy_detection/btgraham-300"

TASKS = (
    VtabTask("caltech101", "Caltech101", _N, "caltech101", 102, "holdout_90"),
    VtabTask("cifar100", "CIFAR-100", _N, "cifar100", 100, "holdout_90"),
    VtabTask("dtd", "DTD", _N, "dtd", 47, "native"),
    VtabTask("oxford_flowers102", "Flowers102", _N, "oxford_flowers102", 102, "native"),
    VtabTask("oxford_iiit_pet", "Pets", _N, "oxford_iiit_pet", 37, "holdout_80"),
    VtabTask("sun397", "Sun397", _N, "sun397/tfds", 397, "native"),
    VtabTask("svhn", "SVHN", _N, "svhn_cropped", 10, "holdout_90"),
    VtabTask("patch_camelyon", "Camelyon", _SP, "patch_camelyon", 2, "native"),
    VtabTask("eurosat", "EuroSAT", _SP, "eurosat/rgb", 10, "60_20_20"),
    VtabTask("resisc45", "Resisc45", _SP, "resisc45", 45, "60_20_20"),
    VtabTask("diabetic_retinopathy", "Retinopathy", _SP, _RETINOPATHY, 5, "native"),
    VtabTask("clevr_count", "Clevr-Count", _ST, "clevr", 8, "clevr", "clevr_count"),
    VtabTask("clevr_distance", "Clevr-Dist", _ST, "clevr", 6, "clevr", "clevr_distance"),
    VtabTask("dmlab", "DMLab", _ST, "dmlab", 6, "native"),
    VtabTask("dsprites_location", "dSpr-Loc", _ST, "dsprites", 16, "80_10_10", "dsprites_location"),
    VtabTask(
        "dsprites_orientation", "dSpr-Ori", _ST, "dsprites", 16, "80_10_10", "dsprites_orientation"
    ),
    VtabTask("kitti_distance", "KITTI-Dist", _ST, "kitti", 4, "native", "kitti_distance"),
    VtabTask("smallnorb_azimuth", "sNORB-Azim", _ST, "smallnorb", 18, "smallnorb", "label_azimuth"),
    VtabTask(
        "smallnorb_elevation", "sNORB-Elev", _ST, "smallnorb", 9, "smallnorb", "label_elevation"
    ),
)


# Rules that hold the end of `train` out: where `val` begins and ends, in percent, and `test`.
# CLEVR's own test split comes without objects, so without labels.
_HELD_OUT = {
    "holdout_90": (90, 100, "test"),
    "holdout_80": (80, 100, "test"),
    "clevr": (90, 100, "validation"),
    "60_20_20": (60, 80, "train[{end}:]"),
    "80_10_10": (80, 90, "train[{end}:]"),
}
# Rules that keep `train` as it is: `val`, its first 200 and `test`.
_WHOLE = {
    "native": ("validation", "validation[:200]", "test"),
    "smallnorb": ("test[:50%]", "test[:200]", "test[50%:]"),
}


def named_splits(rule: str, sizes: Mapping[str, int]) -> dict[str, str]:
    """Returns the seven split texts of a task, given the sizes of its native splits."""
    if rule in _WHOLE:
        val, val200, test = _WHOLE[rule]
        train, trainval = "train", f"train+{val}"
    else:
        *percents, test = _HELD_OUT[rule]
        stop, end = (sizes["train"] * percent // 100 for percent in percents)
        train, trainval, test = f"train[:{stop}]", f"train[:{end}]", test.format(end=end)
        val, val200 = f"train[{stop}:{end}]", f"train[{stop}:{stop + 200}]"
    return {
        "train": train,
        "val": val,
        "trainval": trainval,
        "val200": val200,
        "test": test,
        "train800": "train[:800]",
        "train800val200": f"train[:800]+{val200}",
    }
