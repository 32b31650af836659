"""The table of data sets: where they come from, how they are split and labelled.

`get` answers for four kinds of names:

    cifar10, imagenet2012, digits, …   a row of this table
    vtab/clevr_count, …                one of VTAB's 19 tasks
    tfds:name/config:version           anything TFDS has prepared, private builders included
    folder:/path                       a folder of images, a sub-folder for each class

Nothing here imports TensorFlow; sizes are facts of the table, because TFDS knows no sizes of
data sets that are not prepared.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from training.data import image_folder, prepared, splits, vtab_tasks
from training.data.splits import Range


@dataclasses.dataclass(frozen=True)
class DatasetSpec:
    """One data set.

    Attributes:
        name: name in the registry.
        builder: TFDS builder (`name` or `name/config`), or "" for a folder of images.
        version: versions that are accepted, such as "3.*.*".
        num_classes: number of classes of the label.
        sizes: number of examples of every native split.
        aliases: further names of splits, as split texts over native ones.
        dev: `(sweep, dev)`: the splits to train on and to select on in the paper's sweep over
            learning rates (B.1.1); the final model trains on `train`.
        label: key of the label in the records, or the name of a rule in `vtab_labels`.
        extra_labels: keys of further labels that evaluation yields beside it.
        image: key of the image in the records.
        pixel_scale: factor on the stored pixels.
        other_sizes: further sizes of splits that some versions have.
        class_names: names of the classes, when known.
        obtain: "embedded", "download", "manual" or "private".
        note: how to get it, in a sentence.
        folder: folder of images, for `folder:` names.
    """

    name: str
    builder: str
    version: str
    num_classes: int
    sizes: Mapping[str, int]
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dev: tuple[str, str] | None = None
    label: str = "label"
    extra_labels: tuple[str, ...] = ()
    image: str = "image"
    pixel_scale: int = 1
    other_sizes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    obtain: str = "download"
    note: str = ""
    folder: str = ""

    @property
    def splits(self) -> tuple[str, ...]:
        """Names that a split text may use: native splits and aliases."""
        return (*self.sizes, *(name for name in self.aliases if name not in self.sizes))

    def ranges(self, split: str) -> list[Range]:
        """Returns the ranges of native splits that the text `split` names."""
        return splits.resolve(split, self.sizes, self.aliases)

    def num_examples(self, split: str) -> int:
        """Returns the number of examples of the text `split`, such as "train[:98%]"."""
        return splits.num_examples(split, self.sizes, self.aliases)

    def with_sizes(self, sizes: Mapping[str, int]) -> DatasetSpec:
        """Returns the row for a copy whose native splits have other sizes."""
        task = _VTAB_TASKS.get(self.name)
        aliases = vtab_tasks.task_splits(task.splits, sizes) if task else self.aliases
        return dataclasses.replace(self, sizes=dict(sizes), aliases=aliases)


_VTAB_TASKS = {f"vtab/{task.name}": task for task in vtab_tasks.TASKS}

_MANUAL = {
    "imagenet2012": "register at image-net.org and put ILSVRC2012_img_train.tar (147.9 GB) and "
    "ILSVRC2012_img_val.tar (6.7 GB) into the manual folder",
    "imagenet2012_real": "put ILSVRC2012_img_val.tar (6.7 GB) and real.json of "
    "github.com/google-research/reassessed-imagenet into the manual folder",
    "resisc45": "extract NWPU-RESISC45.rar so that the manual folder holds "
    "NWPU-RESISC45/<class>/*.jpg",
    "diabetic_retinopathy_detection": "put sample/, train/, test/ and trainLabels.csv of Kaggle's "
    "diabetic-retinopathy-detection into the manual folder (needs opencv-python-headless)",
    "sun397": "both published addresses are dead; put SUN397.tar.gz (39.1 GB) into the manual "
    "folder (needs opencv-python-headless)",
    "eurosat": "the server's certificate has expired; put EuroSAT.zip (94 MB, the copy at "
    "huggingface.co/datasets/torchgeo/eurosat has the same checksum) into the manual folder",
}

_DOWNLOAD = {
    "caltech101": "137 MB",
    "cifar10": "170 MB; the server is slow",
    "cifar100": "169 MB; the server is slow",
    "clevr": "19.0 GB",
    "dmlab": "3.0 GB",
    "dsprites": "28 MB; needs h5py",
    "dtd": "625 MB",
    "imagenet_v2": "1.26 GB",
    "kitti": "12.6 GB; needs opencv-python-headless",
    "oxford_flowers102": "345 MB",
    "oxford_iiit_pet": "811 MB",
    "patch_camelyon": "8.0 GB; needs h5py",
    "smallnorb": "263 MB",
    "svhn_cropped": "1.58 GB",
}

_CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def _sources(builder: str) -> dict[str, Any]:
    base = builder.split("/")[0]
    if base in _MANUAL:
        return {"obtain": "manual", "note": _MANUAL[base]}
    return {"obtain": "download", "note": _DOWNLOAD[base]}


def _sweep(percent: int) -> dict:
    """The paper's development split: the last `100 - percent` % of the training set."""
    sweep, dev = f"train[:{percent}%]", f"train[{percent}%:]"
    return {"aliases": {"sweep": sweep, "dev": dev}, "dev": (sweep, dev)}


def _imagenet(extra: dict) -> dict:
    # ImageNet's own test labels are secret: the paper's test set is `validation`.
    return {**extra, "aliases": {**extra.get("aliases", {}), "test": "validation"}}


_ROWS = (
    DatasetSpec(
        "digits",
        "sklearn_digits",
        "1.*.*",
        10,
        {"train": 1_438, "test": 359},
        class_names=tuple("0123456789"),
        obtain="embedded",
        note="written from scikit-learn on first use",
        **_sweep(90),
    ),
    DatasetSpec(
        "cifar10",
        "cifar10",
        "3.*.*",
        10,
        {"train": 50_000, "test": 10_000},
        class_names=_CIFAR10_CLASSES,
        **_sweep(98),
        **_sources("cifar10"),
    ),
    DatasetSpec(
        "cifar100",
        "cifar100",
        "3.*.*",
        100,
        {"train": 50_000, "test": 10_000},
        **_sweep(98),
        **_sources("cifar100"),
    ),
    DatasetSpec(
        "oxford_iiit_pet",
        "oxford_iiit_pet",
        "4.*.*",
        37,
        {"train": 3_680, "test": 3_669},
        **_sweep(90),
        **_sources("oxford_iiit_pet"),
    ),
    DatasetSpec(
        "oxford_flowers102",
        "oxford_flowers102",
        "2.*.*",
        102,
        {"train": 1_020, "validation": 1_020, "test": 6_149},
        **_sweep(90),
        **_sources("oxford_flowers102"),
    ),
    DatasetSpec(
        "imagenet2012",
        "imagenet2012",
        "5.*.*",
        1_000,
        {"train": 1_281_167, "validation": 50_000},
        **_imagenet(_sweep(99)),
        **_sources("imagenet2012"),
    ),
    DatasetSpec(
        "imagenet2012_real",
        "imagenet2012_real",
        "1.*.*",
        1_000,
        {"validation": 50_000},
        label="real_label",
        extra_labels=("original_label",),
        **_imagenet({}),
        **_sources("imagenet2012_real"),
    ),
    DatasetSpec(
        "imagenet_v2",
        "imagenet_v2/matched-frequency",
        "3.*.*",
        1_000,
        {"test": 10_000},
        **_sources("imagenet_v2"),
    ),
    DatasetSpec(
        "imagenet21k",
        "imagenet21k",
        "*",
        21_843,
        {},
        aliases={"train": "full[51200:]", "dev": "full[:25600]", "test": "full[25600:51200]"},
        obtain="private",
        note="TFDS has no builder of it: prepare one of your own named imagenet21k with the "
        "split `full`, or name another as tfds:name:version",
    ),
    *(
        DatasetSpec(
            name,
            task.builder,
            task.version,
            task.num_classes,
            task.sizes,
            aliases=vtab_tasks.task_splits(task.splits, task.sizes),
            dev=("train800", "val200"),
            label=task.label,
            pixel_scale=task.pixel_scale,
            other_sizes={"train": (3_057,)} if task.name == "caltech101" else {},
            **_sources(task.builder),
        )
        for name, task in _VTAB_TASKS.items()
    ),
)

DATASETS: dict[str, DatasetSpec] = {row.name: row for row in _ROWS}

SHORT_NAMES = {
    "pets": "oxford_iiit_pet",
    "flowers": "oxford_flowers102",
    "imagenet": "imagenet2012",
    "real": "imagenet2012_real",
}


def get(name: str, data_dir: str | os.PathLike | None = None) -> DatasetSpec:
    """Returns the row of the data set `name`.

    Args:
        name: a name of the table, `vtab/task`, `tfds:name/config:version` or `folder:/path`.
        data_dir: where `tfds:` names are looked up.

    Raises:
        ValueError: for an unknown name.
        NotPreparedError: for a `tfds:` name that is not prepared in `data_dir`.
    """
    if name.startswith("folder:"):
        return _from_folder(name)
    if name.startswith("tfds:"):
        return _from_tfds(name, data_dir)
    row = DATASETS.get(SHORT_NAMES.get(name, name))
    if row is None:
        raise ValueError(
            f"Unknown data set {name!r}. Expected one of {', '.join(DATASETS)}, "
            "tfds:name/config:version or folder:/path."
        )
    return row


def locate(spec: DatasetSpec, data_dir: str | os.PathLike | None = None) -> prepared.Prepared:
    """Returns the prepared copy of `spec`, writing the embedded data set if need be.

    Raises:
        NotPreparedError: if there is none, with the command or the recipe that gets it.
    """
    if spec.builder == "sklearn_digits":
        from training.data import digits

        return prepared.read(digits.prepare(prepared.resolve_data_dir(data_dir)))
    found = prepared.find(spec.builder, spec.version, data_dir)
    if found is None:
        raise prepared.NotPreparedError(_how_to_get(spec, data_dir))
    return found


def _how_to_get(spec: DatasetSpec, data_dir: str | os.PathLike | None) -> str:
    folder = prepared.resolve_data_dir(data_dir)
    command = f"  python -m training data prepare {spec.name}"
    if data_dir:
        command += f" --data_dir={data_dir}"
    first = f"{spec.name} ({spec.builder} {spec.version}) is not prepared in {folder}."
    if spec.obtain == "private":
        return f"{first} {spec.note}."
    if spec.obtain == "manual":
        return (
            f"{first}\nIt needs files got by hand: {spec.note}.\nThe manual folder is "
            f"{folder / 'downloads' / 'manual'} (or --manual_dir). Then write it with:\n{command}"
        )
    return f"{first}\nDownload and write it ({spec.note}) with:\n{command}"


def _from_folder(name: str) -> DatasetSpec:
    contents = image_folder.scan(name.removeprefix("folder:"))
    return DatasetSpec(
        name,
        builder="",
        version="",
        num_classes=len(contents.class_names),
        sizes={split: len(files) for split, files in contents.splits.items()},
        class_names=contents.class_names,
        obtain="embedded",
        folder=str(contents.root),
    )


def _from_tfds(name: str, data_dir: str | os.PathLike | None) -> DatasetSpec:
    builder, _, version = name.removeprefix("tfds:").partition(":")
    found = prepared.find(builder, version or "*", data_dir)
    if found is None:
        configs = prepared.configs(builder, data_dir)
        hint = (
            f"Its configurations there are {', '.join(configs)}: write tfds:{builder}/{configs[0]}."
            if configs
            else f"Prepare it with: python -m training data prepare {name}"
        )
        raise prepared.NotPreparedError(
            f"{builder} {version or ''} is not prepared in "
            f"{prepared.resolve_data_dir(data_dir)}. {hint}"
        )
    num_classes, class_names = _label_facts(found)
    return DatasetSpec(
        name,
        builder=builder,
        version=found.version,
        num_classes=num_classes,
        sizes=found.sizes,
        class_names=class_names,
        note=f"prepared in {found.directory}",
    )


def _label_facts(found: prepared.Prepared) -> tuple[int, tuple[str, ...] | None]:
    features = json.loads((found.directory / "features.json").read_text(encoding="utf-8"))
    members = features.get("featuresDict", {}).get("features", {})
    label = members.get("label", {})
    label = label.get("sequence", {}).get("feature", label)
    if "image" not in members or "classLabel" not in label:
        raise ValueError(
            f"Expected {found.name} to have the features `image` and `label` (a ClassLabel or a "
            f"sequence of them). Found: {', '.join(members)}."
        )
    return int(label["classLabel"]["numClasses"]), prepared.class_names(found.directory)
