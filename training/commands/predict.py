"""`keras-vit predict SOURCE PHOTO…`: what is on a photo, by name and probability.

SOURCE is a run directory, a .keras file, the published name of a classifier of ImageNet, the
directory of a TF-Hub module, a .tflite or an .onnx file. Photos are files or folders of them; they
are turned upright, and prepared as in the model's evaluation. One that cannot be read is named and
left out.

  keras-vit predict runs/birds photo.jpg
  keras-vit predict runs/birds photos/ --output=predictions.html
  keras-vit predict runs/birds
  keras-vit predict runs/birds --mistakes --csv
  keras-vit predict augreg/B_16-imagenet2012 cat.jpg --json

Without photos, a run that was trained on a folder predicts what it held out of it.

Of a million photos, or of a data set, --shards=DIR writes Parquet files. Where it was stopped, the
same command goes on.

  keras-vit predict runs/birds gs://bucket/photos --shards=gs://bucket/predictions
  keras-vit predict runs/birds --dataset=cifar10 --split=test --shards=predictions
  keras-vit predict runs/birds photos/ --shards=predictions --cluster=10.0.0.1:6379
"""

import argparse
import json
import logging
import os
import pathlib
from collections.abc import Iterable

from keras_vit.checkpoints.model_source import model_source

from ..command_line.data_of_run import own_data, own_split
from ..command_line.options import CommandParser, at_least_0, at_least_1
from ..data.sets.photo_sets import photo_path
from ..errors import TrainingError, UsageError
from ..io.atomic import write_text
from ..io.image_listing import EXTENSIONS, list_images
from ..io.paths import absolute_path, any_path, read_lines
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..io.quiet_start import import_tensorflow, without_warnings

logger = logging.getLogger("keras_vit")


def _store(options):
    # Photos predicted in shards are too large to fetch, and other machines read them.
    return "keep" if options.shards else ""


def add_options(parser: CommandParser) -> None:
    parser.add_source(store=_store)
    text = "image file, or folder of them"
    photos = parser.add_argument(
        "photos", metavar="PHOTO", nargs="+", type=any_path, store=_store, help=text
    )
    # A data set may stand in their place; without any, "*" would have them before all options.
    photos.required = False
    text = "of a checkpoint's head"
    parser.add_argument("--num_classes", metavar="N", type=at_least_1, help=text)
    parser.add_argument("--top", metavar="N", type=at_least_1, default=5, help="classes of a photo")
    parser.add_argument("--labels", metavar="FILE", type=any_path, help="class names, one a line")
    text = "list the run's photos that look like another class than their folder's, in their place"
    parser.add_argument("--mistakes", action="store_true", help=text)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON instead of a table")
    shown.add_argument("--csv", action="store_true", help="print CSV instead of a table")
    text = "also write a page of HTML"
    parser.add_path("--output", text, metavar="FILE")
    text = "of segmentation: write a PNG of class numbers, with a palette, for each photo"
    parser.add_path("--masks", text)
    sharded = parser.add_argument_group("of many images")
    text = "write Parquet files there, and no table"
    sharded.add_argument("--shards", metavar="DIR", type=any_path, help=text)
    parser.stores |= {"shards": "keep", "dataset": "keep"}
    text = "of a file; default 1000"
    sharded.add_argument("--shard_size", type=at_least_1, default=1_000, help=text)
    text = "write what the head is put on too, at the price of a second pass"
    sharded.add_argument("--representation", action="store_true", help=text)
    sharded.add_argument("--dataset", metavar="NAME", help="a data set in place of photos")
    text = "of the data set; default test, or what the run held out of its own"
    sharded.add_argument("--split", help=text)
    parser.add_data_dir()
    clustered = parser.add_argument_group("on many machines, with --shards")
    text = "of a Ray cluster whose machines all see these paths, or local to start one"
    clustered.add_argument("--cluster", metavar="ADDRESS", help=text)
    text = "at once; default one a machine, or a GPU"
    clustered.add_argument("--workers", metavar="N", type=at_least_1, help=text)
    text = "of each worker"
    clustered.add_argument("--num_gpus", metavar="N", type=at_least_0, default=0, help=text)


def _check(options):
    is_image = pathlib.PurePath(options.source).suffix.lower() in EXTENSIONS
    models = [
        path
        for path in options.photos or ()
        if (kind := model_source(path)).is_keras or kind.is_exported
    ]
    if is_image or models:
        received = f"{options.source}, an image, in the model's place"
        received = received if is_image else f"{models[0]}, a model, in a photo's place"
        raise UsageError(
            "Expected the model before the photos: keras-vit predict SOURCE PHOTO…. Received: "
            f"{received}."
        )
    if options.photos and options.split:
        raise UsageError("Expected --dataset=NAME with --split, or a run alone.")
    if not (options.photos or options.dataset):
        _choose_own_data(options)
    shards, machines = options.shards, options.workers is not None or options.num_gpus
    printed = options.output or options.json or options.csv
    head = "--num_classes with --model: the classes of the checkpoint's head, 1000 for ImageNet's"
    for wrong, expected in (
        (options.photos and options.dataset, "either PHOTO… or --dataset=NAME"),
        (options.dataset and not shards, "--shards=DIR, for the predictions of a data set"),
        (options.representation and not shards, "--shards=DIR, for representations"),
        (options.cluster and not shards, "--shards=DIR, for the predictions of a cluster"),
        (shards and printed, "--shards=DIR without --output, --json and --csv"),
        (shards and options.masks, "--shards=DIR without --masks"),
        (machines and not options.cluster, "--cluster=ADDRESS with --workers and --num_gpus"),
        (options.model and options.num_classes is None, head),
    ):
        if wrong:
            raise UsageError(f"Expected {expected}.")


def _choose_own_data(options):
    """Fills in what a run held out of its own data: its photos, or a data set for shards."""
    import_tensorflow()  # quietly, as reading a split needs it
    split = own_split(options)
    if options.shards or not split.photos:
        options.dataset, options.split = split.dataset.name, split.text
    else:
        options.photos = [photo_path(split.dataset.place, photo.path) for photo in split.photos]


def _show_mistakes(options):
    """Prints what training found, in a table, CSV or JSON."""
    if options.photos or options.dataset or options.output or options.shards:
        raise UsageError("Expected a run alone with --mistakes, and perhaps --csv or --json.")
    import_tensorflow()  # quietly, as reading the data needs it
    from ..reporting.doubtful_labels import doubt_table, kept_doubts

    dataset, _ = own_data(options)
    if not (found := kept_doubts(any_path(options.source))):
        raise UsageError(
            "Expected a run on photos in folders of classes, after ten passes over them, with "
            f"--mistakes. Received: {options.source}."
        )
    table = doubt_table(found, dataset.class_names or ())
    if not table.rows:
        photos, step = len(found["scores"]), int(found["step"])
        logger.info("None of %d photos looked like another class after step %d.", photos, step)
    if options.json:
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif options.csv:
        print(table.csv(), end="")
    else:
        table.show(wrapped=["file"])


def run(options: argparse.Namespace) -> None:
    if options.mistakes:
        return _show_mistakes(options)
    _check(options)
    photos = [str(file) for file in list_images(options.photos or ())]
    tensorflow = import_tensorflow()
    if options.cluster:
        # For the workers, of which one may be on this machine.
        tensorflow.config.set_visible_devices([], "GPU")
    from ..prediction.predictor import Predictor

    checkpoint = {"name": options.model}
    checkpoint |= {name: getattr(options, name) for name in ("num_classes", "image_size")}
    predictor = Predictor(
        options.source,
        photos,
        dataset=options.dataset or "",
        split=options.split or "test",
        data_dir=options.data_dir,
        checkpoint=checkpoint,
        class_names=read_lines(options.labels) if options.labels else None,
        top=options.top,
        shard_size=options.shard_size,
        representation=options.representation,
    )
    (_write_shards if options.shards else _show)(options, predictor)


def _show(options, predictor):
    from ..prediction.predictor import NONE
    from ..reporting.html_pages import predictions_html

    found = predictor.predict(range(predictor.count), pictures=bool(options.output))
    found = track(found, f"predicting {predictor.count} photos", predictor.count)
    predictions = list(found)
    readable = [each for each in predictions if each.error is None]
    if not readable:
        first = predictions[0]
        raise ValueError(f"{first.id} cannot be read as an image, nor any other: {first.error}")
    for each in predictions:
        if each.error is not None:
            logger.warning("Left out: %s cannot be read as an image: %s", each.id, each.error)
    if options.output:
        marked = _trained_on(options, dict(zip(predictor.photos, predictions, strict=True)))
        write_text(options.output, predictions_html(predictor.name, readable, marked))
    if options.masks:
        both = zip(predictor.photos, predictions, strict=True)
        photos = {photo: each.answer for photo, each in both if each.error is None}
        _write_masks(options, photos, predictor.preprocessing)
    rows = [
        (each.id, rank, name, f"{value:.4f}" if value is not None else "")
        for each in readable
        for rank, (name, value) in enumerate(each.ranked or [(NONE, None)], start=1)
    ]
    key, *members = predictor.task.shown
    columns = ("file", "rank", *members)
    if predictor.task.classifies == "number":
        # The columns of a table have an order, and no rank.
        columns, rows = ("file", *members), [(file, *pair) for file, _, *pair in rows]
    if options.json:
        answers = [
            {"file": each.id, key: [dict(zip(members, row, strict=True)) for row in each.ranked]}
            for each in readable
        ]
        print(json.dumps(answers, indent=2, ensure_ascii=False))
    elif options.csv:
        print(Table(columns, rows).csv(), end="")
    else:
        Table(columns, rows, f"Predictions of {predictor.name}").show(wrapped=["file"])
        if options.output:
            print(f"Written to {options.output}")


def _write_masks(options, answers, preprocessing):
    """Writes the masks of {photo: answer} by the photos' names, which differ."""
    from ..tasks.segmentation import write_mask

    if not all("mask" in answer for answer in answers.values()):
        raise UsageError(f"Expected --masks with a model of masks. Received: {options.source}.")
    if "crop" in preprocessing or "pad" in preprocessing:
        raise UsageError(
            "Expected --masks with a model whose preprocessing keeps the whole photo. Received: "
            f"{preprocessing!r}."
        )
    files = {photo: options.masks / f"{pathlib.PurePath(photo).stem}.png" for photo in answers}
    if len({*files.values()}) < len(files):
        raise UsageError("Expected photos of different names with --masks, which names its files.")
    for photo, file in files.items():
        write_mask(file, answers[photo]["mask"], photo)


def _trained_on(options, predictions):
    """Returns the ids of {file: prediction} it was trained on, if its data is as it was."""
    try:
        with without_warnings():
            dataset, config = own_data(options)
            train = dataset.split(config["train_split"])
        if train.fingerprint["digest"] != config["data"]["train"]["digest"]:
            folder = os.path.join(os.path.realpath(dataset.place), "")
            if any(os.path.realpath(file).startswith(folder) for file in predictions):
                own_data(options)  # warns that the data changed
            return set()
        photos = train.photos
    except (OSError, ValueError, TrainingError):
        return set()
    trained = {os.path.realpath(photo_path(dataset.place, photo.path)) for photo in photos}
    return {each.id for file, each in predictions.items() if os.path.realpath(file) in trained}


def _write_shards(options, predictor):
    from ..prediction.shards import missing_shards, write_on_cluster, write_shard

    # The same path for a worker on another machine.
    folder = str(absolute_path(options.shards))
    with missing_shards(predictor, folder) as shards:
        done: Iterable[int] = (write_shard(predictor, folder, shard) for shard in shards)
        if options.cluster:
            machines = {"workers": options.workers, "num_gpus": options.num_gpus}
            done = write_on_cluster(predictor, folder, shards, options.cluster, **machines)
        unreadable = sum(track(done, f"predicting {predictor.count} images", len(shards)))
    there = len(predictor.shards) - len(shards)
    print(f"Shards in {options.shards}: {len(shards)} written, {there} there already.")
    if unreadable:
        one = "1 image" if unreadable == 1 else f"{unreadable:,} images"
        logger.warning("%s cannot be read: the column `error` says why.", one)
