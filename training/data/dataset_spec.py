"""`DatasetSpec`: the facts of one data set that reading, splitting and labeling it need."""

import dataclasses
from collections.abc import Mapping

from training.data import splits, vtab_tasks
from training.data.splits import Range


@dataclasses.dataclass(frozen=True)
class DatasetSpec:
    """One data set.

    Attributes:
        name: name in the table, or as `dataset_lookup.get` was given it.
        builder: TFDS builder (`name` or `name/config`), or "" for a folder of images.
        version: versions that are accepted, such as "3.*.*".
        num_classes: number of classes of the label.
        sizes: number of examples of every native split.
        aliases: further names of splits, as split texts over native ones.
        vtab_splits: rule of `vtab_tasks.task_splits`, of whose splits `aliases` are then.
        dev: `(sweep, dev)`: the splits to train on and to select on in the paper's sweep over
            learning rates (B.1.1); the final model trains on `train`.
        label: key of the label in the records, or the name of a rule in `vtab_labels`.
        extra_labels: keys of further labels that evaluation yields beside it.
        pixel_scale: factor on the stored pixels.
        other_sizes: further sizes of splits that some versions have.
        class_names: names of the classes, when known.
        obtain: "embedded", "download", "manual" or "private".
        note: how to get it, in a sentence.
        folder: folder of images, for `folder:` names.
        photos: whether its images were written from such a folder.
    """

    name: str
    builder: str
    version: str
    num_classes: int
    sizes: Mapping[str, int]
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    vtab_splits: str = ""
    dev: tuple[str, str] | None = None
    label: str = "label"
    extra_labels: tuple[str, ...] = ()
    pixel_scale: int = 1
    other_sizes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    obtain: str = "download"
    note: str = ""
    folder: str = ""
    photos: bool = False

    @property
    def upright(self) -> bool:
        """Whether photos are turned as their EXIF orientation says.

        Those of TFDS are read as they are stored: published numbers were computed so.
        """
        return bool(self.folder) or self.photos

    def ranges(self, split: str) -> list[Range]:
        """Returns the ranges of native splits that the text `split` names."""
        return splits.resolve(split, self.sizes, self.aliases)

    def num_examples(self, split: str) -> int:
        """Returns the number of examples of the text `split`, such as "train[:98%]"."""
        return splits.num_examples(split, self.sizes, self.aliases)

    def with_sizes(self, sizes: Mapping[str, int]) -> "DatasetSpec":
        """Returns the row for a copy whose native splits have other sizes."""
        rule = self.vtab_splits
        aliases = vtab_tasks.task_splits(rule, sizes) if rule else self.aliases
        return dataclasses.replace(self, sizes=dict(sizes), aliases=aliases)
