"""`python -m training predict SOURCE PHOTO…`: what is on a photo, by name and probability.

SOURCE is a run directory, a .keras file, the published name of a classifier of ImageNet, the
directory of a TF-Hub module or a .tflite file. Photos are files or folders of them; they are turned
upright, and prepared as in the model's evaluation. One that cannot be read is named and left out.

  python -m training predict runs/birds photo.jpg
  python -m training predict runs/birds photos/ --output=predictions.html
  python -m training predict runs/birds
  python -m training predict augreg/B_16-imagenet2012 cat.jpg --json

Without photos, a run that was trained on a folder predicts what it held out of it.

Of a million photos, or of a data set, --shards=DIR writes Parquet files. Where it was stopped, the
same command goes on.

  python -m training predict runs/birds gs://bucket/photos --shards=gs://bucket/predictions
  python -m training predict runs/birds --dataset=cifar10 --split=test --shards=predictions
  python -m training predict runs/birds photos/ --shards=predictions --cluster=10.0.0.1:6379
"""

import json
import logging
import sys
from collections.abc import Iterable

from training.command_options import CommandParser, own_data
from training.data.photo_sets import photo_path
from training.errors import UsageError
from training.exit_status import command_main
from training.io.paths import any_path, is_remote
from training.io.quiet_start import import_tensorflow

logger = logging.getLogger("training")

COLUMNS = ("file", "rank", "class", "probability")


def _parser():
    parser = CommandParser("python -m training predict", __doc__)
    parser.add_source(optional=False)
    photos = parser.add_argument(
        "photos",
        metavar="PHOTO",
        nargs="+",
        type=any_path,
        help="image file, or folder of them",
    )
    # A data set may stand in their place; without any, "*" would have them before all options.
    photos.required = False
    parser.add_argument("--num_classes", metavar="N", type=int, help="of a checkpoint's head")
    parser.add_argument("--top", metavar="N", type=int, default=5, help="classes of each photo")
    parser.add_argument(
        "--labels", metavar="FILE", type=any_path, help="text with a class name a line"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON instead of a table")
    shown.add_argument("--csv", action="store_true", help="print CSV instead of a table")
    parser.add_argument(
        "--output", metavar="FILE", type=any_path, help="also write a page of HTML to this file"
    )
    sharded = parser.add_argument_group("of many images")
    sharded.add_argument(
        "--shards", metavar="DIR", type=any_path, help="write Parquet files there, and no table"
    )
    sharded.add_argument(
        "--shard_size", metavar="IMAGES", type=int, default=1_000, help="of a file; default 1000"
    )
    sharded.add_argument(
        "--representation",
        action="store_true",
        help="write what the head is put on too, at the price of a second pass",
    )
    sharded.add_argument("--dataset", metavar="NAME", help="a data set in place of photos")
    sharded.add_argument(
        "--split", help="of the data set; default test, or what the run held out of its own"
    )
    parser.add_data_dir()
    clustered = parser.add_argument_group("on many machines, with --shards")
    clustered.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="of a Ray cluster whose machines all see these paths, or local to start one",
    )
    clustered.add_argument(
        "--workers", metavar="N", type=int, help="at once; default one a machine, or a GPU"
    )
    clustered.add_argument(
        "--num_gpus", metavar="N", type=float, default=0, help="of each worker; default none"
    )
    return parser


def _check(options):
    if options.photos and options.dataset:
        raise UsageError("Expected either PHOTO… or --dataset=NAME.")
    if not (options.photos or options.dataset):
        _choose_own_data(options)
    if options.dataset and not options.shards:
        raise UsageError("Expected --shards=DIR, where the predictions of a data set are written.")
    if options.representation and not options.shards:
        raise UsageError("Expected --shards=DIR, where representations are written.")
    if options.shards and (options.output or options.json or options.csv):
        raise UsageError("Expected --shards=DIR without --output, --json and --csv.")
    if options.cluster and not options.shards:
        raise UsageError("Expected --shards=DIR, where a cluster writes predictions.")
    if (options.workers is not None or options.num_gpus) and not options.cluster:
        raise UsageError("Expected --cluster=ADDRESS with --workers and --num_gpus.")
    if (options.workers is not None and options.workers < 1) or options.num_gpus < 0:
        raise UsageError("Expected --workers of at least 1 and --num_gpus of at least 0.")
    if options.shard_size < 1:
        raise UsageError(f"Expected --shard_size to be at least 1. Received: {options.shard_size}")
    if options.top < 1:
        raise ValueError(f"Expected --top to be at least 1. Received: {options.top}")
    if options.model and options.num_classes is None:
        raise ValueError(
            "Expected --num_classes with --model: a checkpoint's head is loaded if it is known "
            "how many classes it has, 1000 for ImageNet's."
        )


def _choose_own_data(options):
    """Fills in what a run held out of its own data: a data set for shards, else its photos."""
    if not (any_path(options.source) / "config.json").is_file():
        raise UsageError("Expected either PHOTO… or --dataset=NAME.")
    dataset, config = own_data(options.source, options.data_dir)
    text = options.split or config["eval_split"] or config["train_split"]
    if options.shards:
        options.dataset, options.split = dataset.name, text
        options.data_dir = options.data_dir or config["data_dir"]
    else:
        split = dataset.split(text)
        if not split.photos:
            raise UsageError(
                f"Expected PHOTO…, or --shards=DIR for what the run held out of {dataset.name}."
            )
        options.photos = [photo_path(dataset.place, photo.path) for photo in split.photos]


def _predict(options):
    _check(options)
    tensorflow = import_tensorflow()
    if options.shards:
        _write_shards(options, tensorflow)
        return
    from training.evaluators.frozen_model import load_frozen
    from training.io.atomic import write_text
    from training.io.image_files import list_images
    from training.io.paths import read_lines
    from training.io.track import track
    from training.predictions import predict_files
    from training.reporting.predictions_html import predictions_html
    from training.reporting.table import Table

    files = list_images(options.photos)
    model = load_frozen(
        options.source,
        name=options.model,
        num_classes=options.num_classes,
        image_size=options.image_size,
    )
    unreadable: list[Exception] = []
    found = predict_files(
        model,
        files,
        top=options.top,
        class_names=read_lines(options.labels) if options.labels else None,
        attention=bool(options.output),
        unreadable=unreadable.append,
    )
    predictions = list(track(found, f"predicting {len(files)} photos", len(files)))
    if not predictions:
        raise unreadable[0]
    for error in unreadable:
        logger.warning("Left out: %s", error)
    if options.output:
        write_text(options.output, predictions_html(model.name, predictions))
    if options.json:
        print(json.dumps(list(map(_as_json, predictions)), indent=2, ensure_ascii=False))
        return
    rows = [
        (each.name, rank, name, f"{probability:.4f}")
        for each in predictions
        for rank, (name, probability) in enumerate(each.classes, start=1)
    ]
    if options.csv:
        print(Table(COLUMNS, rows).csv(), end="")
        return
    Table(COLUMNS, rows, f"Predictions of {model.name}").show(wrapped=["file"])
    if options.output:
        print(f"Written to {options.output}")


def _write_shards(options, tensorflow):
    from training.io.image_files import list_images
    from training.io.paths import read_lines
    from training.io.track import track
    from training.prediction_job import Job
    from training.prediction_shards import Predictor, entered

    job = Job(
        source=options.source,
        # Where a worker stands on another machine, it is the same.
        directory=str(options.shards if is_remote(options.shards) else options.shards.absolute()),
        photos=[str(file) for file in list_images(options.photos or ())],
        dataset=options.dataset or "",
        split=options.split or "test",
        data_dir=options.data_dir,
        checkpoint={
            "name": options.model,
            "num_classes": options.num_classes,
            "image_size": options.image_size,
        },
        class_names=read_lines(options.labels) if options.labels else None,
        top=options.top,
        shard_size=options.shard_size,
        representation=options.representation,
    )
    if options.cluster:
        # For the workers, of which one may be on this machine.
        tensorflow.config.set_visible_devices([], "GPU")
    predictor = Predictor(job)
    with entered(predictor, job) as shards:
        done: Iterable[int] = map(predictor.write, shards)
        if options.cluster:
            from training.prediction_cluster import write_on_cluster

            done = write_on_cluster(
                job,
                predictor.manifest,
                shards,
                options.cluster,
                workers=options.workers,
                num_gpus=options.num_gpus,
            )
        unreadable = sum(track(done, f"predicting {predictor.count} images", len(shards)))
    there = len(predictor.shards) - len(shards)
    print(f"Wrote {len(shards)} shards to {options.shards}; {there} were there already.")
    if unreadable:
        logger.warning("%d images cannot be read: the column `error` says why.", unreadable)


def _as_json(prediction):
    classes = [{"class": name, "probability": value} for name, value in prediction.classes]
    return {"file": prediction.name, "classes": classes}


main = command_main(_parser, _predict)

if __name__ == "__main__":
    sys.exit(main())
