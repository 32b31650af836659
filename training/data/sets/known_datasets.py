"""The table of data sets: where they come from, how they are split and labeled.

To add a data set, write its builder and its row here. Nothing here imports TensorFlow. Sizes stand
in the table because TFDS knows no sizes of data sets that are not prepared.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from keras_vit.name_suggestions import did_you_mean

from ...paper_tables import VTAB, VtabTask
from . import splits

# Rules of VTAB's splits that hold the end of `train` out: where `val` begins and ends, in percent,
# and `test`. CLEVR's own test split comes without objects, so without labels.
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


def vtab_named_splits(rule: str, sizes: Mapping[str, int]) -> dict[str, str]:
    """Returns the seven split texts of a task, given the sizes of its native splits.

    They are train, val, trainval, test, train800, val200 and train800val200 (the 1,000 examples).
    Select on val200 after training on train800; report `test` after training on train800val200. The
    slices are absolute, as in the reference implementation: `.take(1000)` or percentages name other
    examples.
    """
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


@dataclasses.dataclass(frozen=True)
class DatasetSpec:
    """The facts of a data set."""

    name: str  # as commands and configs give it
    num_classes: int
    sizes: Mapping[str, int]  # number of examples of every native split
    builder: str = ""  # of TFDS, `name` or `name/config`; "" for photos
    version: str = "*"  # accepted versions, such as "3.*.*"
    # Further names of splits, as split texts over native ones.
    named_splits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    vtab_splits: str = ""  # the rule of VTAB that makes them of the sizes instead
    # The splits to train on and to select on in the paper's sweep over learning rates (B.1.1); the
    # final model trains on `train`.
    dev: tuple[str, str] | None = None
    image: str = "image"  # its key in the records
    label: str = "label"  # its key in the records, or the name of a rule in `vtab_labels`
    extra_labels: tuple[str, ...] = ()  # keys of further labels that evaluation yields beside it
    pixel_scale: int = 1  # factor on the stored pixels
    # Further sizes of splits that some versions have.
    other_sizes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    obtain: str = "download"  # or "embedded", "manual", "private"
    note: str = ""  # how to get it, in a sentence

    @property
    def aliases(self) -> Mapping[str, str]:
        """Further names of splits, as split texts over native ones."""
        return (
            vtab_named_splits(self.vtab_splits, self.sizes)
            if self.vtab_splits
            else self.named_splits
        )

    def ranges(self, split: str) -> list[splits.Range]:
        """Returns the ranges of native splits that the text `split` names."""
        return splits.resolve(split, self.sizes, self.aliases)

    def num_examples(self, split: str) -> int:
        """Returns the number of examples of the text `split`, such as "train[:98%]"."""
        return sum(part.size for part in self.ranges(split))


def _builder(version: str, sizes: dict[str, int], note: str, obtain: str = "download") -> dict:
    return {"version": version, "sizes": sizes, "note": note, "obtain": obtain}


_BUILDERS = {
    "sklearn_digits": _builder(
        "1.*.*", {"train": 1_438, "test": 359}, "written from scikit-learn on first use", "embedded"
    ),
    "digit_canvases": _builder(
        "1.*.*", {"train": 2_884, "test": 180}, "written from scikit-learn on first use", "embedded"
    ),
    "caltech101": _builder("3.*.*", {"train": 3_060, "test": 6_084}, "137 MB")
    | {"other_sizes": {"train": (3_057,)}},
    "celeb_a": _builder(
        "2.*.*", {"train": 162_770, "validation": 19_867, "test": 19_962}, "1.4 GB"
    ),
    "cifar10": _builder("3.*.*", {"train": 50_000, "test": 10_000}, "170 MB; the server is slow"),
    "cifar100": _builder("3.*.*", {"train": 50_000, "test": 10_000}, "169 MB; the server is slow"),
    "cityscapes/semantic_segmentation": _builder(
        "1.*.*",
        {"train": 2_975, "validation": 500, "test": 1_525},
        "register at cityscapes-dataset.com and put leftImg8bit_trainvaltest.zip (11.6 GB) and "
        "gtFine_trainvaltest.zip (253 MB) into the manual folder",
        "manual",
    ),
    "clevr": _builder("3.*.*", {"train": 70_000, "validation": 15_000, "test": 15_000}, "19.0 GB"),
    "diabetic_retinopathy_detection/btgraham-300": _builder(
        "3.*.*",
        {"sample": 10, "train": 35_126, "validation": 10_906, "test": 42_670},
        "put sample/, train/, test/ and trainLabels.csv of Kaggle's diabetic-retinopathy-detection "
        "into the manual folder (needs opencv-python-headless)",
        "manual",
    ),
    "coco/2017": _builder(
        "1.*.*", {"train": 118_287, "validation": 5_000, "test": 40_670}, "25.2 GB"
    ),
    "dmlab": _builder("2.*.*", {"train": 65_550, "validation": 22_628, "test": 22_735}, "3.0 GB"),
    # Stores 0 and 1.
    "dsprites": _builder("2.*.*", {"train": 737_280}, "28 MB; needs h5py") | {"pixel_scale": 255},
    "dtd": _builder("3.*.*", {"train": 1_880, "validation": 1_880, "test": 1_880}, "625 MB"),
    "eurosat/rgb": _builder(
        "2.*.*",
        {"train": 27_000},
        "the server's certificate has expired; put EuroSAT.zip (94 MB, the copy at "
        "huggingface.co/datasets/torchgeo/eurosat has the same checksum) into the manual folder",
        "manual",
    ),
    "imagenet2012": _builder(
        "5.*.*",
        {"train": 1_281_167, "validation": 50_000},
        "register at image-net.org and put ILSVRC2012_img_train.tar (147.9 GB) and "
        "ILSVRC2012_img_val.tar (6.7 GB) into the manual folder",
        "manual",
    ),
    "imagenet2012_real": _builder(
        "1.*.*",
        {"validation": 50_000},
        "put ILSVRC2012_img_val.tar (6.7 GB) and real.json of "
        "github.com/google-research/reassessed-imagenet into the manual folder",
        "manual",
    ),
    "imagenet21k": _builder(
        "*",
        {},
        "TFDS has no builder of it: prepare one of your own named imagenet21k with the split "
        "`full`, or name another as tfds:name:version",
        "private",
    ),
    "imagenet_v2/matched-frequency": _builder("3.*.*", {"test": 10_000}, "1.26 GB"),
    "kitti": _builder(
        "3.*.*",
        {"train": 6_347, "validation": 423, "test": 711},
        "12.6 GB; needs opencv-python-headless",
    ),
    "oxford_flowers102": _builder(
        "2.*.*", {"train": 1_020, "validation": 1_020, "test": 6_149}, "345 MB"
    ),
    "oxford_iiit_pet": _builder("4.*.*", {"train": 3_680, "test": 3_669}, "811 MB"),
    "patch_camelyon": _builder(
        "2.*.*", {"train": 262_144, "validation": 32_768, "test": 32_768}, "8.0 GB; needs h5py"
    ),
    "resisc45": _builder(
        "3.*.*",
        {"train": 31_500},
        "extract NWPU-RESISC45.rar so that the manual folder holds NWPU-RESISC45/<class>/*.jpg",
        "manual",
    ),
    "smallnorb": _builder("2.*.*", {"train": 24_300, "test": 24_300}, "263 MB"),
    "sun397/tfds": _builder(
        "4.*.*",
        {"train": 76_128, "validation": 10_875, "test": 21_750},
        "both published addresses are dead; put SUN397.tar.gz (39.1 GB) into the manual folder "
        "(needs opencv-python-headless)",
        "manual",
    ),
    "svhn_cropped": _builder(
        "3.*.*", {"train": 73_257, "test": 26_032, "extra": 531_131}, "1.58 GB"
    ),
    "voc/2007": _builder("5.*.*", {"train": 2_501, "validation": 2_510, "test": 4_952}, "869 MB"),
}


def _row(builder: str, num_classes: int, name: str = "", **facts: Any) -> DatasetSpec:
    facts = {**_BUILDERS[builder], **facts}
    return DatasetSpec(name or builder, num_classes, builder=builder, **facts)


def _sweep(percent: int, **aliases: str) -> dict[str, Any]:
    """The paper's development split: the last `100 - percent` % of the training set."""
    sweep, dev = f"train[:{percent}%]", f"train[{percent}%:]"
    return {"named_splits": {"sweep": sweep, "dev": dev, **aliases}, "dev": (sweep, dev)}


def _vtab(task: VtabTask) -> DatasetSpec:
    facts = {"label": task.label, "vtab_splits": task.splits, "dev": ("train800", "val200")}
    return _row(task.builder, task.num_classes, f"vtab/{task.name}", **facts)


# Beginnings of the names of data sets of photos.
OF_PHOTOS = ("folder:", "labels:", "csv:", "masks:", "ade20k:")
# Labels that are maps of classes.
MASKS = ("segmentation_mask", "pet_mask", "cityscapes_mask")
_CITYSCAPES = (
    "road,sidewalk,building,wall,fence,pole,traffic light,traffic sign,vegetation,terrain,sky,"
    "person,rider,car,truck,bus,train,motorcycle,bicycle"
)
_VOC = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike "
    "person pottedplant sheep sofa train tvmonitor"
)
_CELEB_A = (
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose "
    "Black_Hair Blond_Hair Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee "
    "Gray_Hair Heavy_Makeup High_Cheekbones Male Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard "
    "Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks Sideburns Smiling Straight_Hair "
    "Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace Wearing_Necktie Young"
)
_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_ROWS = (
    _row("sklearn_digits", 10, "digits", class_names=tuple("0123456789"), **_sweep(90)),
    _row(
        "digit_canvases",
        6,
        "digits_masks",
        label="segmentation_mask",
        class_names=("background", *"01234"),
        **_sweep(90),
    ),
    _row("cifar10", 10, class_names=tuple(_CIFAR10.split()), **_sweep(98)),
    _row("cifar100", 100, **_sweep(98)),
    _row("oxford_iiit_pet", 37, **_sweep(90)),
    _row(
        "oxford_iiit_pet",
        3,
        "oxford_iiit_pet_masks",
        label="pet_mask",
        class_names=("pet", "background", "border"),
        **_sweep(90),
    ),
    # The labels of the test images are secret.
    _row(
        "cityscapes/semantic_segmentation",
        19,
        "cityscapes",
        image="image_left",
        label="cityscapes_mask",
        class_names=tuple(_CITYSCAPES.split(",")),
        **_sweep(90, test="validation"),
    ),
    # Several labels for an image. Those of COCO's test images are secret.
    _row("voc/2007", 20, "voc2007", label="labels", class_names=tuple(_VOC.split()), **_sweep(90)),
    _row("celeb_a", 40, label="celeb_a_attributes", class_names=tuple(_CELEB_A.split())),
    _row("coco/2017", 80, "coco2017", label="coco_classes", **_sweep(90, test="validation")),
    _row("oxford_flowers102", 102, **_sweep(90)),
    # ImageNet's own test labels are secret: the paper's test set is `validation`.
    _row("imagenet2012", 1_000, **_sweep(99, test="validation")),
    _row(
        "imagenet2012_real",
        1_000,
        named_splits={"test": "validation"},
        label="real_label",
        extra_labels=("original_label",),
    ),
    _row("imagenet_v2/matched-frequency", 1_000, "imagenet_v2"),
    _row(
        "imagenet21k",
        21_843,
        named_splits={"train": "full[51200:]", "dev": "full[:25600]", "test": "full[25600:51200]"},
    ),
)

DATASETS = {row.name: row for row in (*_ROWS, *map(_vtab, VTAB))}

SHORT_NAMES = {
    "pets": "oxford_iiit_pet",
    "flowers": "oxford_flowers102",
    "imagenet": "imagenet2012",
    "real": "imagenet2012_real",
}


def full_name(name: str) -> str:
    """Returns the name in the table of a short name, and any other name as it is."""
    return SHORT_NAMES.get(name, name)


def row(name: str) -> DatasetSpec:
    """Returns the row of a data set, which need not be on disk.

    That of `tfds:name/config:version` knows no sizes and no classes. Raises `ValueError` for any
    other name that is not in the table.
    """
    if name.startswith("tfds:"):
        builder, _, version = name.removeprefix("tfds:").partition(":")
        note = "if TFDS knows it, or name the folder where it was prepared with --data_dir"
        return DatasetSpec(name, 0, {}, builder, version or "*", note=note)
    found = DATASETS.get(full_name(name))
    if found is None:
        meant = did_you_mean(name, [*DATASETS, *SHORT_NAMES])
        if os.path.exists(os.path.join(name, "model.keras")):
            meant = f"{name} is a run, which stands in SOURCE's place. "
        elif os.path.isdir(name):
            meant = f"Did you mean folder:{name}? "
        raise ValueError(
            f"{meant}Expected folder:/path of your own images, tfds:name/config:version, or one of "
            f"{', '.join(DATASETS)}. Received: an unknown data set {name!r}."
        )
    return found
