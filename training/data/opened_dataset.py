"""Data sets, opened once: `open` finds one on disk and returns a split of it.

    cifar10, imagenet2012, digits, …   a row of the table, `training.data.sets.known_datasets`
    vtab/clevr_count, …                one of VTAB's 19 tasks
    tfds:name/config:version           anything TFDS has prepared, private builders included
    folder:/path, csv:/file.csv        photos of one's own, `training.data.sets.photo_sets`
    labels:/path                       the same, with links of a photo for several labels
    masks:/path                        photos of one's own with maps of classes; ade20k:/path

What is opened here travels on as an object: nothing below a command takes the name of a data set.
Opening imports no TensorFlow, so that missing data is reported at once: what needs it is imported
where the first example is read.
"""

import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_vit.photos.imagenet_classes import imagenet_classes

from ..errors import TrainingError
from ..io.paths import is_remote, size_and_time
from ..io.quiet_start import without_warnings
from .sets import fingerprint, known_datasets, photo_sets, splits, tfds_folder
from .sets.known_datasets import MASKS, OF_PHOTOS, DatasetSpec, full_name

if TYPE_CHECKING:
    import tensorflow as tf

    from .preprocessing.preprocess import Preprocess
    from .records import Reader
    from .skip_unreadable import SkipCounter

logger = logging.getLogger("keras_vit")

# As TFDS names the classes of ImageNet.
_SYNSET = re.compile(r"n\d{8}")


def open(name: str, split: str, data_dir: str | os.PathLike | None = None) -> "Split":
    """Opens a split of a data set.

    Args:
        name: a name of the table (`keras-vit data list`), `vtab/task`,
            `tfds:name/config:version`, `folder:/path`, `labels:/path` or `csv:/file.csv`.
        split: such as "train", "train[:98%]" or "train[:800]+validation[:200]".
        data_dir: folder of prepared data sets; empty or None is the default of TFDS.

    Raises:
        NotPreparedError: if it is not on disk, with the command or recipe that gets it.
        ValueError: for unknown names and splits, or a copy of unexpected size.
    """
    return open_dataset(name, data_dir).split(split)


def open_dataset(
    name: str, data_dir: str | os.PathLike | None = None, prepare: bool = True
) -> "Dataset":
    """Finds a data set on disk; arguments and errors as `open`. Photos are listed in one walk.

    `prepare` writes the digits, which come with the package, where they are not there.
    """
    if name.startswith(OF_PHOTOS):
        photos = photo_sets.read(name)
        sizes = {split: len(members) for split, members in photos.splits.items()}
        names = photos.class_names
        spec = DatasetSpec(name, len(names), sizes, class_names=names)
        return Dataset(spec, photos.root, photos=photos)
    spec = known_datasets.row(name)
    if spec.obtain == "embedded" and prepare:
        from .sets.prepare_datasets import prepare_embedded

        prepare_embedded(spec.builder, data_dir)
    spec, place, info = tfds_folder.read(spec, data_dir)
    return Dataset(spec, place, info=info)


def open_data_of_run(
    run: str | os.PathLike,
    config: Mapping[str, Any],
    data_dir: str | os.PathLike | None = None,
    dataset: "Dataset | None" = None,
) -> "Dataset":
    """Opens the data set that a run was trained on, and warns of what has changed in it since.

    Args:
        run: its directory, as the warning names it.
        config: its `config.json`.
        data_dir: where the data is now; None is where the run found it.
        dataset: the data set, if it is open already.
    """
    dataset = dataset or open_dataset(config["dataset"], data_dir or config["data_dir"])
    if str(run) not in dataset.changes:
        now = dataset.describe(config["train_split"], config["eval_split"])
        if said := dataset.changes.setdefault(str(run), fingerprint.changes_since(config, now)):
            logger.warning("The data of %s has changed: %s", run, said)
    return dataset


def warn_of_trained(split: "Split", run: str | os.PathLike, config: Mapping[str, Any]) -> None:
    """Warns where images of a split, which is scored, trained the model of a run, or may have.

    Args:
        split: compared with what the run's training split is today, as far as that can be.
        run: its directory, as warnings name it.
        config: its `config.json`.
    """
    name, dataset = config["dataset"], split.dataset
    of_photos = name.startswith(OF_PHOTOS)
    if of_photos != bool(split.photos):
        return
    try:
        if not of_photos and known_datasets.row(name).builder != dataset.spec.builder:
            return
        is_own = full_name(name) == dataset.name
        # Nobody asked for data that is opened only to be compared with.
        with contextlib.nullcontext() if is_own else without_warnings():
            if not is_own:
                dataset = open_dataset(name, config["data_dir"], prepare=False)
            trained = open_data_of_run(run, config, dataset=dataset).split(config["train_split"])
    except (OSError, ValueError) as error:
        expected = "It cannot be told whether images of %s trained %s: %s"
        logger.warning(expected, split.text, run, error)
        return
    split.warn_of_shared(trained, f"{run} was trained on")


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A data set on disk.

    Attributes:
        spec: its facts, with the sizes found.
        place: its folder.
        photos: its photos, if it is a folder or table of them.
        info: its `tfds.core.DatasetInfo`, if TFDS prepared it.
        changes: by the directory of a run that `open_data_of_run` compared it with, what has
            changed in it since, or "".
    """

    spec: DatasetSpec
    place: pathlib.Path
    photos: photo_sets.PhotoSet | None = None
    info: Any = None
    _splits: "dict[str, Split]" = dataclasses.field(default_factory=dict, repr=False)
    changes: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def split(self, text: str) -> "Split":
        """Returns a split of it, the same object for the same text; see `open`."""
        if text not in self._splits:
            photos = tuple(splits.select(text, self.photos.splits)) if self.photos else ()
            ranges = [] if photos else self.spec.ranges(text)
            count = len(photos) or sum(part.size for part in ranges)
            self._splits[text] = Split(self, text, count, photos, ranges)
        return self._splits[text]

    def is_same(self, other: "Dataset") -> bool:
        """Whether both are one data set of TFDS, which may have several names, paths and copies."""
        return bool(self.info and other.info) and self._contents() == other._contents()

    def _contents(self):
        files = {
            split: (each.num_bytes, each.shard_lengths) for split, each in self.info.splits.items()
        }
        return self.info.full_name, files

    @property
    def name(self) -> str:
        """Its full name in the table, or `folder:`, `csv:` or `tfds:` as it was given."""
        return self.spec.name

    @property
    def num_classes(self) -> int:
        """Number of classes of the label."""
        return self.spec.num_classes

    @property
    def has_masks(self) -> bool:
        """Whether its labels are maps of classes."""
        return self.spec.label in MASKS or bool(self.photos and self.photos.masks)

    @property
    def kind(self) -> str:
        """Of photos `PhotoSet.kind`, else ""."""
        return self.photos.kind if self.photos else ""

    @functools.cached_property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes by label, if known; in words for ImageNet's 1,000."""
        names = self.spec.class_names
        of_imagenet = self.spec.builder.startswith("imagenet") and self.num_classes == 1_000
        if of_imagenet and all(_SYNSET.fullmatch(name) for name in names or ()):
            return tuple(imagenet_classes())
        return names

    def require_unchanged(self, photos: Iterable[splits.Photo] | None = None) -> None:
        """Raises `TrainingError` if files were replaced since they were listed; not in a store.

        `photos` are some of the data set; None takes all, or all files of opened splits.
        """
        if photos is None:
            photos = itertools.chain(*self.photos.splits.values()) if self.photos else ()
            records = [split for split in self._splits.values() if split.ranges]
            try:
                now = [each.reader.modified() for each in records]
            except FileNotFoundError:
                now = None
            if now != [each.fingerprint["modified"] for each in records]:
                raise TrainingError(
                    f"Files in {self.place} were replaced while {self.name} was read. Put them "
                    "back, or begin anew in another folder."
                )
        for path, _, *listed in photos:
            file = photo_sets.photo_path(self.place, path)
            if [*_size_and_time(file)] != listed:
                raise TrainingError(
                    f"{file} was replaced while images were read. Put it back, or begin anew in "
                    "another folder."
                )

    def describe(self, train_split: str, eval_split: str = "") -> dict[str, Any]:
        """Returns `{"class_names": names or None, "train": …, "eval": … or None}` of a run.

        The fingerprints of both splits.
        """
        return {
            "class_names": None if self.class_names is None else list(self.class_names),
            "train": self.split(train_split).fingerprint,
            "eval": self.split(eval_split).fingerprint if eval_split else None,
        }


@dataclasses.dataclass(eq=False)
class Split:
    """A part of a data set, whose files are opened when the first example is read.

    Attributes:
        dataset: the whole data set.
        text: as it was asked for.
        num_examples: number of examples.
        photos: its photos, if they are the user's own.
        ranges: its ranges of native splits, if TFDS prepared the data set.
    """

    dataset: Dataset
    text: str
    num_examples: int
    photos: tuple[splits.Photo, ...] = ()
    ranges: Sequence[splits.Range] = ()

    @functools.cached_property
    def reader(self) -> "Reader":
        """Its reader; opens the files, `ValueError` for damaged ones or those of another format."""
        import tensorflow as tf

        from . import records

        dataset = self.dataset
        # A graph may be the first to ask; what is kept must not belong to it.
        with tf.init_scope():
            if dataset.photos and dataset.has_masks:
                return records.mask_reader(dataset.photos, self.photos)
            if dataset.photos and dataset.photos.targets:
                return records.target_reader(dataset.place, self.photos, dataset.photos.targets)
            if dataset.info is None:
                return records.photo_reader(dataset.place, self.photos, dataset.num_classes)
            return records.record_reader(dataset.place, dataset.spec, dataset.info, self.ranges)

    @functools.cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Identifies its examples, see `training.data.sets.fingerprint`."""
        return self.reader.fingerprint()

    @property
    def identity(self) -> str:
        """A text for caches: it changes with examples, their place, and when files are written."""
        return "{digest}{modified}".format(**self.fingerprint) + str(self.dataset.place)

    @functools.cached_property
    def left_out(self) -> "SkipCounter | None":
        """Counts the photos that cannot be read, and names each in a warning.

        None for what TFDS prepared, of which every example has to be read.
        """
        from .skip_unreadable import SkipCounter

        return SkipCounter(named=True) if self.photos else None

    def require_unchanged(self, images: slice = slice(None)) -> None:
        """Raises `TrainingError` if files of these images were replaced since they were listed."""
        self.dataset.require_unchanged(self.photos[images] or None)

    def warn_of_shared(self, trained: "Split", who: str = "trains") -> None:
        """Warns where images of it, on which a model is scored, are among those that train it.

        Photos are the same if their content is; those of one data set in a store, if their path is.
        """
        own, others = self._sizes(), trained._sizes()
        copies = {file: size for file, size in own.items() if file not in others}
        shared = len(own) - len(copies)
        if trained.dataset is not self.dataset or not is_remote(self.dataset.place):
            shared += photo_sets.count_copies(copies, others)
        if self.dataset.is_same(trained.dataset):
            for one, other in itertools.product(self.ranges, trained.ranges):
                shared += one.shared_with(other)
        if shared:
            logger.warning(
                "%d of the %d images of %s, which is scored, are in %s too, which %s: the score "
                "says little of other images.",
                *(shared, self.num_examples, self.text, trained.text, who),
            )

    def _sizes(self):
        """Returns {file: size in bytes} of its photos."""
        place = self.dataset.place
        return {photo_sets.photo_path(place, photo.path): photo.size for photo in self.photos}

    def read(self, index: "tf.Tensor") -> "dict[str, tf.Tensor]":
        """Returns the example at an int64 index, in a TensorFlow graph or eagerly.

        Returns:
            `{"image": encoded bytes, "label": class or classes}` and the data set's extra labels.
        """
        return self.reader.parse(self.reader.record(index), index)

    def example_id(self, index: int) -> str:
        """Returns the id of an example: TFDS's, or the path of a photo."""
        return self.reader.example_id(index)

    def preprocess(
        self, text: str, reduced_decoding: float = 0.0, divided: bool = False
    ) -> "Preprocess":
        """Returns the operations of `text`, with what the data set's images need.

        `divided` leaves what follows `on_device` to the training step.
        """
        from .preprocessing.preprocess import Preprocess

        info = self.dataset.info
        # Published photos are read as they are stored: published numbers were computed so.
        upright = (
            info is None or info.features[self.dataset.spec.image].doc.desc == tfds_folder.UPRIGHT
        )
        return Preprocess(
            text,
            pixel_scale=self.dataset.spec.pixel_scale,
            upright=upright,
            reduced_decoding=reduced_decoding,
            divided=divided,
        )


def open_files(files: Sequence[str]) -> Split:
    """Returns image files as a split; one that does not exist fails when it is read."""
    photos = tuple(splits.Photo(file, 0, *_size_and_time(file)) for file in files)
    spec = DatasetSpec("files", 1, {"files": len(photos)})
    return Split(Dataset(spec, pathlib.Path()), "files", len(photos), photos)


def _size_and_time(file):
    try:
        return size_and_time(file)
    except OSError:
        return 0, 0
