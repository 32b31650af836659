"""`keras-vit evaluate SOURCE`: the metrics of a model's task on every image of a split.

A classifier's are its accuracies, counted over every image of the split. On ImageNet's ReaL labels
(imagenet2012_real) a prediction is correct if it is among the image's labels, and images without
any are left out.

Without --dataset, a run is evaluated on what it held out of its own data. Where the classes of a
data set are those of the model in another order, they are matched by name; others are refused.

With --windows, images of masks keep their size and aspect: windows of the model's size slide over
each, as Segmenter's published numbers are computed.

With --weights SOURCE is the data set, and accuracies stand beside the published ones; imagenet2012
also stands for its ReaL labels and for ImageNet-V2, where they are prepared.

  keras-vit evaluate runs/birds
  keras-vit evaluate runs/finetune --dataset=cifar10 --data_dir=DIR
  keras-vit evaluate ViT-B_16.npz --model=ViT-B/16 --dataset=imagenet2012 --data_dir=DIR
  keras-vit evaluate imagenet2012 --weights=augreg/B_16-imagenet2012 --data_dir=DIR
"""

import argparse
import json
import logging

from .. import data
from ..command_line.data_of_run import own_config, own_split
from ..command_line.options import CommandParser, at_least_1, list_of, number
from ..data.opened_dataset import warn_of_trained
from ..data.sets.tfds_folder import NotPreparedError
from ..errors import UsageError
from ..io.atomic import write_text
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..io.quiet_start import import_tensorflow
from ..source_facts import runs_behind
from ..tasks import LOSS

logger = logging.getLogger("keras_vit")


def add_options(parser: CommandParser) -> None:
    parser.add_source()
    parser.add_dataset()
    text = "published checkpoint to compare with its published score"
    parser.add_argument("--weights", metavar="NAME", help=text)
    text = "AugReg's index.csv, with all its scores; default ~/.keras/keras_vit/augreg/index.csv"
    parser.add_argument("--index", metavar="FILE", help=text)
    text = "of a .tflite file: litert or openvino; default: what is installed and faster"
    parser.add_argument("--runtime", metavar="NAME", help=text)
    parser.add_argument("--split", help="default test, or what the run held out of its own data")
    parser.add_argument("--loss", choices=("softmax", "sigmoid"), help="default: the model's")
    parser.add_argument("--per_class", action="store_true", help="also print a row for each class")
    text = "of masks: slide windows of the model's size over images of this short side, in pixels"
    parser.add_argument("--windows", metavar="SHORT", type=at_least_1, default=0, help=text)
    text = "pixels from window to window; default 32 less than the window"
    parser.add_argument("--stride", metavar="N", type=at_least_1, default=0, help=text)
    text = "of --windows, averaged, such as 0.5,0.75,1,1.25,1.5,1.75; default 1"
    scale = number(float, lambda value: 0 < value < 100, "a factor above 0 and below 100")
    parser.add_argument("--scales", type=list_of(scale), default=[1.0], help=text)
    parser.add_argument("--flip", action="store_true", help="of --windows: mirrored images as well")
    parser.add_path("--output", "for metrics.json, and per_class.csv and confusion.csv by data set")


def run(options: argparse.Namespace) -> None:
    if options.index and not options.weights:
        raise UsageError("Expected --weights=NAME with --index.")
    if not options.windows and (options.stride or options.scales != [1.0] or options.flip):
        raise UsageError("Expected --windows=SHORT with --stride, --scales and --flip.")
    if not (options.weights or options.dataset):
        own_config(options)  # before what takes seconds
    import_tensorflow()
    from ..evaluators.published_augreg_scores import architecture_of, published_scores
    from ..inference.open_model import open_source

    checkpoint, scores = {"name": options.model, "image_size": options.image_size}, None
    if options.weights:
        scores = published_scores(options.weights, options.index)
        if not all(checkpoint.values()):
            named = architecture_of(options.weights)
            checkpoint["image_size"] = options.image_size or named.image_size
            if not options.model:
                checkpoint |= {"name": named.model, **named.arguments}
    splits, missing = _splits(options)
    if len({_folder_name(split.dataset.name) for split in splits}) < len(splits):
        raise UsageError(
            "Expected data sets whose names differ by more than / and :, as each gets a folder of "
            f"--output. Received: {', '.join(split.dataset.name for split in splits)}."
        )
    if checkpoint["name"]:
        checkpoint["num_classes"] = splits[0].dataset.num_classes
    source = options.weights or options.source
    model = open_source(source, runtime=options.runtime, **checkpoint)
    model.require_head()
    for run, config in runs_behind(source):
        for split in splits:
            warn_of_trained(split, run, config)
    results = {split.dataset.name: _measure(model, split, options) for split in splits}
    if options.output:
        text = json.dumps(results, indent=2, sort_keys=True) + "\n"
        write_text(options.output / "metrics.json", text)
    task, rows = model.task, []
    most = max(split.dataset.num_classes for split in splits)
    shown = [*(each for each in task.metrics if most > each.of_more_than), LOSS]
    columns = ["data set", "images", *(each.heading for each in shown)]
    main, has_margin = task.main, task.main.of_images and not scores
    columns += [f"95 % interval of {main.title}"] if has_margin else []
    for name, result in results.items():
        row = [f"{name} {result['split']}", result["count"]]
        row += [each.text(result[each.name]).removesuffix(" %") for each in shown]
        row += [main.margin(result[main.name], result["count"])] if has_margin else []
        if scores:
            score, ours = scores.by_dataset.get(name), 100 * result[task.main.name]
            row += ["–", "–"] if score is None else [f"{score:.2f}", f"{ours - score:+.2f}"]
        rows.append(row)
    # Longer than the table is wide.
    size = f" at {checkpoint['image_size']} pixels" if scores else ""
    print(f"Evaluation of {source if scores else model.name}{size}")
    columns += ["published %", "difference"] if scores else []
    Table(columns, rows).show(wrapped=columns)
    if not scores:
        return
    print(f"Published: {scores.source or 'nothing that is known here; see --index'}.")
    print(f"Images: {options.preprocess or model.interface.preprocessing}", *missing, sep="\n\n")


def _splits(options):
    """Returns the splits to evaluate, and why further test sets of --weights are missing."""
    from ..protocols.learning_rate_sweep import FURTHER_TEST_SETS

    if not (options.weights or options.dataset):
        return [own_split(options)], []
    text, missing = options.split or "test", []
    names = [options.source] if options.weights else options.dataset
    splits = [data.open(name, text, options.data_dir) for name in names]
    for name in FURTHER_TEST_SETS.get(splits[0].dataset.name, ()) if options.weights else ():
        try:
            splits.append(data.open(name, text, options.data_dir))
        except NotPreparedError as error:
            missing.append(error)
    return splits, missing


def _measure(model, split, options):
    """Returns the metrics of a model on a split, and prints and writes the tables asked for."""
    preprocess = options.preprocess or model.interface.preprocessing
    name, loss = split.dataset.name, options.loss or model.interface.activation or "softmax"
    if options.windows:
        from ..evaluators.windows import evaluate_by_windows

        chosen = options.windows, options.stride, options.scales, options.flip
        found, preprocess = evaluate_by_windows(model, split, *chosen), "decode, by windows"
    else:
        batches = track(model.batches(split, preprocess, options.batch_size), f"evaluating {name}")
        found = model.task.evaluate(model, batches, split.dataset, loss)
    split.require_unchanged()
    if found.note and (options.per_class or options.output):
        logger.warning(found.note)
    if options.per_class and "per_class" in found.tables:
        found.tables["per_class"]._replace(title=name).show()
    for each, table in found.tables.items() if options.output else ():
        write_text(options.output / _folder_name(name) / f"{each}.csv", table.csv())
    return {**found.metrics, "split": split.text, "preprocess": preprocess}


def _folder_name(dataset):
    return dataset.replace("/", "_").replace(":", "_")
