"""What the name of a data set stands for, and where its prepared copy is.

`get` answers for four kinds of names:

    cifar10, imagenet2012, digits, …   a row of `known_datasets`
    vtab/clevr_count, …                one of VTAB's 19 tasks
    tfds:name/config:version           anything TFDS has prepared, private builders included
    folder:/path                       a folder of images, a sub-folder for each class
"""

import json
import os

from training.data import image_folder, tfds_folder
from training.data.dataset_spec import DatasetSpec
from training.data.known_datasets import DATASETS, SHORT_NAMES
from training.io.paths import read_text


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
        meant = f" Did you mean folder:{name}?" if os.path.isdir(name) else ""
        raise ValueError(
            f"Unknown data set {name!r}.{meant} Expected folder:/path of your own images, "
            f"tfds:name/config:version, or one of {', '.join(DATASETS)}."
        )
    return row


def locate(spec: DatasetSpec, data_dir: str | os.PathLike | None = None) -> tfds_folder.Prepared:
    """Returns the prepared copy of `spec`, writing the embedded data set if need be.

    Raises:
        NotPreparedError: if there is none, with the command or the recipe that gets it.
    """
    if spec.builder == "sklearn_digits":
        from training.data import digits

        return tfds_folder.read(digits.prepare(tfds_folder.resolve_data_dir(data_dir)))
    found = tfds_folder.find(spec.builder, spec.version, data_dir)
    if found is None:
        raise tfds_folder.NotPreparedError(_how_to_get(spec, data_dir))
    return found


def _how_to_get(spec: DatasetSpec, data_dir: str | os.PathLike | None) -> str:
    folder = tfds_folder.resolve_data_dir(data_dir)
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
    found = tfds_folder.find(builder, version or "*", data_dir)
    if found is None:
        configs = tfds_folder.configs(builder, data_dir)
        hint = (
            f"Its configurations there are {', '.join(configs)}: write tfds:{builder}/{configs[0]}."
            if configs
            else f"Prepare it with: python -m training data prepare {name}"
        )
        raise tfds_folder.NotPreparedError(
            f"{builder} {version or ''} is not prepared in "
            f"{tfds_folder.resolve_data_dir(data_dir)}. {hint}"
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
        photos=tfds_folder.holds_photos(found.directory),
    )


def _label_facts(found: tfds_folder.Prepared) -> tuple[int, tuple[str, ...] | None]:
    file = found.directory / "features.json"
    try:
        members = json.loads(read_text(file)).get("featuresDict", {}).get("features", {})
        label = members.get("label", {})
        label = label.get("sequence", {}).get("feature", label)
        num_classes = int(label["classLabel"]["numClasses"]) if "classLabel" in label else 0
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"Expected the features of a data set. {file} is damaged ({type(error).__name__}: "
            f"{error}). Prepare the data set again."
        ) from error
    if "image" not in members or num_classes < 1:
        raise ValueError(
            f"Expected {found.name} to have the features `image` and `label` (a ClassLabel or a "
            f"sequence of them). Found: {', '.join(members)}."
        )
    return num_classes, tfds_folder.class_names(found.directory)
