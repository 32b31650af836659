"""`python -m training predict SOURCE PHOTO…`: what is on a photo, by name and probability.

SOURCE is a run directory, a .keras file, the published name of a classifier of ImageNet, the
directory of a TF-Hub module or a .tflite file. Photos are files or folders of them; they are turned
upright, and prepared as in the model's evaluation.

  python -m training predict runs/birds photo.jpg
  python -m training predict runs/birds photos/ --output=predictions.html
  python -m training predict augreg/B_16-imagenet2012 cat.jpg --json
"""

import json
import sys

from training.command_options import CommandParser
from training.exit_status import command_main
from training.io.local_path import any_path
from training.io.quiet_tensorflow import import_tensorflow

COLUMNS = ("file", "rank", "class", "probability")


def _parser():
    parser = CommandParser("python -m training predict", __doc__)
    parser.add_source(optional=False)
    parser.add_argument(
        "photos",
        metavar="PHOTO",
        nargs="+",
        type=any_path,
        help="image file, or folder of them",
    )
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
    return parser


def _predict(options):
    if options.top < 1:
        raise ValueError(f"Expected --top to be at least 1. Received: {options.top}")
    if options.model and options.num_classes is None:
        raise ValueError(
            "Expected --num_classes with --model: a checkpoint's head is loaded if it is known "
            "how many classes it has, 1000 for ImageNet's."
        )
    import_tensorflow()
    from training.evaluators.frozen_model import load_frozen
    from training.io.atomic import write_text
    from training.io.image_files import list_images
    from training.io.text_lines import read_lines
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
    if options.labels:
        names = read_lines(options.labels)
    else:
        names = None
    found = predict_files(
        model, files, top=options.top, class_names=names, attention=bool(options.output)
    )
    predictions = list(track(found, f"predicting {len(files)} photos"))
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


def _as_json(prediction):
    classes = [{"class": name, "probability": value} for name, value in prediction.classes]
    return {"file": prediction.name, "classes": classes}


main = command_main(_parser, _predict)

if __name__ == "__main__":
    sys.exit(main())
