"""`keras-vit data`: lists, checks, prepares and indexes data sets."""

import argparse
import contextlib
from collections import Counter

import numpy as np

from ..command_line.options import CommandParser, at_least_1
from ..data import open_dataset
from ..data.sets import tfds_folder
from ..data.sets.known_datasets import DATASETS
from ..data.sets.prepare_datasets import prepare, prepare_photos
from ..data.sets.splits import HELD_OUT_FIFTH
from ..errors import UsageError, first_line
from ..io.atomic import write_text
from ..io.image_listing import spread
from ..io.paths import local_path
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..io.quiet_start import DAMAGED_JPEG, held_stderr, import_tensorflow
from ..tasks.segmentation import IGNORED, Segmentation

MAX_DECODED, MAX_SHOWN = 100, 24
# Cameras and microscopes store 10 to 14 bits in 16, of which the upper 8 are then below this.
_DARK = 64
# Side of the thumbnails that are compared, and the correlation from which two are one image.
_THUMBNAIL, _SAME = 16, 0.98


def _list(data_dir):
    rows = []
    for spec in DATASETS.values():
        sizes = ", ".join(f"{name} {size:,}" for name, size in spec.sizes.items())
        state = _state(spec, data_dir)
        rows.append((spec.name, f"{spec.num_classes:,}", sizes, state, spec.obtain))
    print(f"Data sets, looked up in {tfds_folder.resolve_data_dir(data_dir)}")
    Table(("name", "classes", "splits", "prepared", "source"), rows).show(wrapped=["splits"])
    print("`keras-vit data check NAME` says how to get what is missing.")
    own = "folder:/path, labels:/path, csv:/file, masks:/path"
    print(f"Also: tfds:name/config:version (anything TFDS prepared there), {own}")
    return 0


def _check(name, data_dir, every_image=False, output=None, duplicates=False):
    """Prints what a check of the data set finds; returns 1 if something is wrong, else 0."""
    dataset = open_dataset(name, data_dir)
    if output and not dataset.has_masks:
        raise UsageError(f"Expected --output=FILE with a data set of masks. Received: {name}.")
    if dataset.info:
        print(f"{name}: {dataset.info.full_name} in {dataset.place}")
    sizes = dataset.spec.sizes
    for split, size in sizes.items():
        print(f"  {split}: {size:,} examples")
    _show_classes(dataset)
    remedy = "Fill its folder or remove it." if dataset.photos else "Prepare it again."
    problems = [f"{split} is empty. {remedy}" for split, size in sizes.items() if not size]
    filled = [split for split, size in sizes.items() if size]
    each = max(sizes.values()) if every_image else MAX_DECODED // max(len(filled), 1) or 1
    chosen = [(split, index) for split in filled for index in spread(range(sizes[split]), each)]
    labels, unreadable, dark = _decode(dataset, chosen) if chosen else (Counter(), [], [])
    if output and labels:
        write_text(output, _page(dataset, chosen[:: -(-len(chosen) // MAX_SHOWN)]))
        print(f"Written to {output}")
    classes = dataset.num_classes
    if dataset.has_masks:
        known = [each for each in labels if each >= 0 and each != IGNORED]
        labels = Counter({each: labels[each] for each in known})
        _show_shares(dataset, labels)
    if dataset.kind in ("labels", "numbers"):
        labels = Counter()
        print(f"  {classes:,} {'classes' if dataset.kind == 'labels' else 'numbers'} of each photo")
    else:
        print(f"  {classes:,} classes, {len(labels)} of them among the images decoded")
    problems += unreadable + dark + (_shared(dataset) if duplicates else [])
    outside = sorted(label for label in labels if not 0 <= label < classes)
    if outside:
        problems.append(f"labels outside 0..{classes - 1}: {outside}")
    for problem in problems:
        print(f"  problem: {problem}")
    tried, failed = len(chosen), len(unreadable)
    count = f"{tried - failed} of {tried}" if failed else str(tried)
    print(f"  {count} images decoded: {'see above' if problems else 'all well'}")
    if left := sum(sizes.values()) - tried:
        print(f"  {left:,} images not looked at: --all decodes every one")
    return 1 if problems else 0


def _shared(dataset):
    """Returns a problem for each held-out image that nearly is one that trains.

    Images are compared as gray thumbnails, whatever their brightness and contrast.
    """
    tf = import_tensorflow()
    from ..evaluators.nearest_neighbors import directions, nearest

    splits = {name: dataset.split(name) for name, size in dataset.spec.sizes.items() if size}
    if dataset.photos and len(splits) == 1:
        splits = {name: dataset.split(name) for name in HELD_OUT_FIFTH}
    looks, ids = {}, {}
    for name, split in splits.items():
        decode, rows = split.preprocess("decode"), []
        for index in track(range(split.num_examples), f"looking at {name}"):
            with contextlib.suppress(tf.errors.OpError, ValueError):  # named as unreadable
                image = decode(split.read(tf.constant(index, tf.int64))["image"], (0, 0))
                gray = tf.reduce_mean(tf.cast(image, tf.float32), axis=-1, keepdims=True)
                thumbnail = tf.image.resize(gray, (_THUMBNAIL, _THUMBNAIL), "area").numpy().ravel()
                rows.append((index, thumbnail - thumbnail.mean()))
        ids[name] = [index for index, _ in rows]
        looks[name] = directions(np.reshape([look for _, look in rows], (-1, _THUMBNAIL**2)))
    trains = next((name for name in splits if name.startswith("train")), next(iter(splits)))
    problems, compared = [], sum(map(len, ids.values())) - len(ids[trains])
    for name in splits.keys() - {trains}:
        found = [*nearest(looks[name], looks[trains], 1)]
        for place in np.flatnonzero(np.concatenate([each for _, each in found]) >= _SAME):
            row = int(np.concatenate([each for each, _ in found])[place, 0])
            held_out = splits[name].example_id(ids[name][place])
            trained = splits[trains].example_id(ids[trains][row])
            problems.append(f"{name} {held_out} looks like {trained} of {trains}, which trains")
    print(
        f"  {compared:,} held-out images compared with {len(ids[trains]):,} of {trains}: "
        f"{len(problems):,} look the same, by a correlation of {_SAME:g} of thumbnails"
    )
    if extra := problems[MAX_DECODED:]:
        problems[MAX_DECODED:] = [f"{len(extra):,} more held-out images look like ones that train"]
    return sorted(problems)


def _decode(dataset, chosen):
    """Returns how often labels are those of images (split, index), and what is wrong with them.

    Of masks the labels are those of pixels.
    """
    # Imported here, so that missing data is reported without waiting for TensorFlow.
    tf = import_tensorflow()
    from keras_vit.photos.prepare_photos import is_of_16_bits

    unreadable, dark, damaged = [], [], []
    labels: Counter[int] = Counter()
    decode = dataset.split(chosen[0][0]).preprocess("decode")
    for name, index in track(chosen, "decoding"):
        split = dataset.split(name)
        try:
            example = split.read(tf.constant(index, tf.int64))
            lines: list[bytes] = []
            with held_stderr(lines):
                brightest = tf.reduce_max(decode(example["image"], (0, 0)))
            if line := next(filter(DAMAGED_JPEG.match, lines), b""):
                reason = line.decode().strip()
                damaged.append(f"{name} {split.example_id(index)}: it is read in part: {reason}")
            if brightest < _DARK and is_of_16_bits(example["image"].numpy()):
                dark.append(f"{name} {split.example_id(index)}")
            values, counts = np.unique(example["label"].numpy(), return_counts=True)
            labels.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        # Pillow raises a ValueError, as it is not in a graph here.
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError, ValueError) as error:
            reason = first_line(getattr(error, "message", error))
            unreadable.append(f"{name} {split.example_id(index)}: {reason}")
    if dark:
        dark = [
            f"{len(dark)} images of 16 bits, such as {dark[0]}, have values below {_DARK << 8} "
            "alone. Their upper 8 bits are kept, which are nearly black: multiply the values so "
            "that the largest possible one is 65535 (by 16 for 12 bits), or save 8 bits."
        ]
    return labels, unreadable, damaged + dark


def _page(dataset, chosen):
    """Returns a page of images (split, index), under the colors of their masks."""
    import tensorflow as tf

    from ..prediction.predictor import Prediction
    from ..reporting.html_pages import PHOTO_SIDE, predictions_html

    task, shown = Segmentation(), []
    names = dataset.class_names or [str(number) for number in range(dataset.num_classes)]
    for name, index in chosen:
        split = dataset.split(name)
        # The command names images that cannot be read.
        with contextlib.suppress(tf.errors.OpError, ValueError):
            prepare = split.preprocess(f"decode|resize_small({PHOTO_SIDE})|to_uint8")
            read = split.read(tf.constant(index, tf.int64))
            example = task.encode(prepare.example(read, (0, 0)), len(names))
            image, mask = example["image"].numpy(), example["label"].numpy()
            counts = np.bincount(mask[(mask >= 0) & (mask < len(names))], minlength=len(names))
            order = [each for each in np.argsort(-counts, kind="stable")[:5] if counts[each]]
            ranked = [(names[each], counts[each] / mask.size) for each in order]
            picture = task.picture(image, {"mask": mask})
            shown.append(Prediction(split.example_id(index), ranked=ranked, image=picture))
    note = "Each image is half covered by the colors of its classes; what has no class is gray."
    return predictions_html(dataset.name, shown, title="Masks", note=note)


def _prepare(name, data_dir, manual_dir, beam, as_name, num_shards):
    """Downloads and writes the data set, or writes photos as one, then checks it."""
    if as_name or name.startswith(("csv:", "labels:")):
        name = prepare_photos(name, as_name, data_dir, num_shards, beam)
        print(f"Written as {name}")
    else:
        prepare(name, data_dir, manual_dir, beam)
    return _check(name, data_dir)


def _index(name, data_dir):
    """Writes beside the files of a data set where their records begin."""
    dataset = open_dataset(name, data_dir)
    form = dataset.info.file_format.value if dataset.info else "no prepared data set"
    if form != "tfrecord":
        raise UsageError(f"Expected TFRecord files. {name} holds {form}, which needs no index.")
    import_tensorflow()
    from ..data.records import write_index

    splits = dataset.info.splits.values()
    paths = [str(path) for split in splits for path in split.filepaths]
    write_index(paths)
    print(f"Wrote the index of {len(paths)} files of {name} beside them")
    return 0


def _draw(folder, annotations):
    """Writes masks of the objects that COCO's annotations of the photos in a folder have."""
    from ..data.sets.coco_masks import draw_masks

    count, names = draw_masks(folder, annotations or folder / "annotations.json")
    print(f"Wrote {count} masks of {', '.join(names)}: the data set masks:{folder}")
    return 0


def _show_classes(dataset):
    """Prints a table of the photos of each class, and those that `own_photos` holds out."""
    if dataset.photos is None or dataset.has_masks:
        return
    splits = dataset.photos.splits
    if list(splits) == ["train"]:
        splits = {part: [] for part in HELD_OUT_FIFTH}
        for part in HELD_OUT_FIFTH:
            # A folder that is too small has none.
            with contextlib.suppress(ValueError):
                splits[part] = [*dataset.split(part).photos]
    if targets := dataset.photos.targets:
        return _show_targets(dataset, splits, targets)
    counts = [Counter(photo.label for photo in photos) for photos in splits.values()]
    rows = [
        (name, *(str(count[label]) for count in counts))
        for label, name in enumerate(dataset.photos.class_names)
    ]
    Table(("class", *splits), rows).show()


def _show_targets(dataset, splits, targets):
    """Prints in how many photos each class is, or the smallest and largest of each number."""
    of_labels, lines = dataset.kind == "labels", [dataset.photos.class_names]
    for photos in splits.values():
        rows = np.array([targets[photo.path] for photo in photos] or [[np.nan]] * len(lines[0]))
        known = [column[~np.isnan(column)] for column in rows.reshape(-1, len(lines[0])).T]
        ends = [f"{each.min():g} to {each.max():g}" if len(each) else "none" for each in known]
        shares = [f"{each.sum():.0f} of {len(each)}" for each in known]
        lines.append(shares if of_labels else ends)
    Table(("class" if of_labels else "number", *splits), [*zip(*lines, strict=True)]).show()


def _show_shares(dataset, labels):
    """Prints the part of the pixels decoded that each class has."""
    total, names = max(labels.total(), 1), dataset.class_names or range(dataset.num_classes)
    rows = [(str(name), f"{100 * labels[number] / total:.2f}") for number, name in enumerate(names)]
    Table(("class", "pixels %"), rows).show()


def _state(spec, data_dir):
    try:
        found = tfds_folder.find(spec.builder, spec.version, data_dir)
    except tfds_folder.NotPreparedError:
        return "broken"
    return found.name if found else "-"


def add_options(parser: CommandParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, help="what to do")
    bucket = "write beside the files of a set in a bucket where their records begin"
    check = "verify a prepared copy: sizes, classes, and up to 100 images decoded"
    for command, action, text in (
        ("list", _list, "show the table of data sets and what is prepared"),
        ("check", _check, check),
        ("prepare", _prepare, "download and write a data set"),
        ("index", _index, bucket),
    ):
        sub = commands.add_parser(command, help=text, description=text, stores=parser.stores)
        sub.set_defaults(action=action)
        if command != "list":
            sub.add_argument("name", help="such as cifar10, vtab/dtd or tfds:name/config")
        sub.add_data_dir()
        if command == "check":
            text = "decode every image"
            sub.add_argument("--all", action="store_true", dest="every_image", help=text)
            text = "also look for held-out images that train too, exactly or nearly"
            sub.add_argument("--duplicates", action="store_true", help=text)
            text = f"of masks: also write a page of HTML with up to {MAX_SHOWN} of the images"
            sub.add_path("--output", text, metavar="FILE")
        if command == "prepare":
            sub.add_argument("--manual_dir", metavar="DIR", help="folder of files got by hand")
            text = "of Apache Beam, to write a large set on many machines: --beam=--runner=NAME"
            sub.add_argument("--beam", metavar="OPTION", action="append", default=[], help=text)
            text = "write folder:/path or csv:/file.csv (path,label,split) as tfds:NAME"
            sub.add_argument("--as", metavar="NAME", dest="as_name", default="", help=text)
            text = "files of each split, with --as"
            sub.add_argument("--num_shards", metavar="N", type=at_least_1, help=text)

    text = "write PNG masks of the objects in COCO's annotations, beside FOLDER/images/"
    sub = commands.add_parser("draw", help=text, description=text, stores=parser.stores)
    sub.set_defaults(action=_draw)
    text = "with images/; masks/ and labels.json come beside it"
    sub.add_argument("folder", metavar="FOLDER", type=local_path, help=text)
    text = "default FOLDER/annotations.json"
    sub.add_argument("--annotations", metavar="FILE", type=local_path, help=text)


def run(options: argparse.Namespace) -> int:
    settings = vars(options)
    del settings["command"]
    return settings.pop("action")(**settings)
