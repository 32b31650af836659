"""`python -m training evaluate SOURCE`: accuracy of a model on every image of a split.

Reports top-1 and top-5 accuracy, counted over every image of the split. On ImageNet's ReaL labels
(imagenet2012_real) a prediction is correct if it is among the image's labels, and images without
any are left out.

Without --dataset, a run is evaluated on what it held out of its own data. Where the classes of a
data set are those of the model in another order, they are matched by name; others are refused.

With --weights SOURCE is the data set, and accuracies stand beside the published ones; imagenet2012
also stands for its ReaL labels and for ImageNet-V2, where they are prepared.

  python -m training evaluate runs/birds
  python -m training evaluate runs/finetune --dataset=cifar10 --data_dir=DIR
  python -m training evaluate ViT-B_16.npz --model=ViT-B/16 --dataset=imagenet2012 --data_dir=DIR
  python -m training evaluate imagenet2012 --weights=augreg/B_16-imagenet2012 --data_dir=DIR
"""

import json
import sys

from training.command_options import CommandParser, own_data
from training.errors import UsageError
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = CommandParser("python -m training evaluate", __doc__)
    parser.add_source()
    parser.add_dataset(required=False)
    parser.add_argument(
        "--weights", metavar="NAME", help="published checkpoint to compare with its published score"
    )
    parser.add_argument(
        "--index",
        metavar="FILE",
        help="AugReg's index.csv, with the scores of all its checkpoints; default that in "
        "~/.keras/keras_vit/augreg, if any",
    )
    parser.add_argument("--split", help="default test, or what the run held out of its own data")
    parser.add_argument("--loss", choices=("softmax", "sigmoid"), default="softmax")
    parser.add_argument("--per_class", action="store_true", help="also print a row for each class")
    parser.add_path("--output", "for metrics.json, and per_class.csv and confusion.csv by data set")
    return parser


def _evaluate(options):
    if options.weights:
        return _evaluate_published(options)
    splits = _splits(options)
    import_tensorflow()
    from training.evaluators.frozen_model import load_frozen
    from training.reporting.table import Table

    model = load_frozen(
        options.source,
        name=options.model,
        image_size=options.image_size,
        num_classes=splits[0].dataset.num_classes,
    )
    results = {split.dataset.name: _measure(model, split, options) for split in splits}
    _write(results, options)
    rows = [
        (
            f"{name} {result['split']}",
            result["count"],
            f"{100 * result['top1']:.2f}",
            f"{100 * result['top5']:.2f}",
            f"{result['loss']:.4f}",
        )
        for name, result in results.items()
    ]
    columns = ("data set", "images", "top-1 %", "top-5 %", "loss")
    Table(columns, rows, f"Accuracy of {model.name}").show()


def _splits(options):
    from training import data

    if options.dataset:
        split = options.split or "test"
        return [data.open(name, split, options.data_dir) for name in options.dataset]
    if not options.source:
        raise UsageError("Expected --dataset=NAME, the data sets to evaluate on. Received: none.")
    dataset, config = own_data(options.source, options.data_dir)
    return [dataset.split(options.split or config["eval_split"] or config["train_split"])]


def _measure(model, split, options):
    """Returns the metrics of a model on a split, and prints those of classes if asked to."""
    from training.evaluators import classification
    from training.evaluators.accuracy_metrics import per_class
    from training.io.track import track

    preprocess = options.preprocess or model.preprocess
    name = split.dataset.name
    batches = split.evaluate(split.preprocess(preprocess), batch_size=options.batch_size)
    result = classification.evaluate(
        model.logits,
        track(batches, f"evaluating {name}"),
        loss=options.loss,
        classes=classification.class_order(model.class_names, split.dataset.class_names, name),
    )
    classes = per_class(result["confusion"], split.dataset.class_names or model.class_names)
    if options.per_class:
        classes._replace(title=name).show()
    return {**result, "classes": classes, "split": split.text, "preprocess": preprocess}


def _write(results, options):
    """Writes the files of --output."""
    from training.io.atomic import write_text
    from training.reporting.table import Table

    if not options.output:
        return
    metrics = {}
    for dataset, result in results.items():
        metrics[dataset] = dict(result)
        confusion, classes = (metrics[dataset].pop(key) for key in ("confusion", "classes"))
        folder = options.output / dataset.replace("/", "_").replace(":", "_")
        write_text(folder / "per_class.csv", classes.csv())
        names = [row[0] for row in classes.rows]
        matrix = [(name, *counts) for name, counts in zip(names, confusion, strict=True)]
        write_text(folder / "confusion.csv", Table(("label", *names), matrix).csv())
    text = json.dumps(metrics, indent=2, sort_keys=True) + "\n"
    write_text(options.output / "metrics.json", text)


def _evaluate_published(options):
    import_tensorflow()
    from training.data import open_dataset
    from training.data.tfds_folder import NotPreparedError
    from training.evaluators.frozen_model import load_frozen
    from training.published_scores import architecture_of, published_scores
    from training.reporting.table import Table

    published = published_scores(options.weights, options.index)
    arguments = {}
    if not (options.model and options.image_size):
        named = architecture_of(options.weights)
        options.image_size = options.image_size or named.image_size
        if not options.model:
            options.model, arguments = named.name, named.arguments
    dataset = open_dataset(options.source, options.data_dir)
    text = options.split or "test"
    splits, missing = {dataset.name: dataset.split(text)}, []
    further = ("imagenet2012_real", "imagenet_v2") if dataset.name == "imagenet2012" else ()
    for name in further:
        try:
            splits[name] = open_dataset(name, options.data_dir).split(text)
        except NotPreparedError as error:
            missing.append(str(error))
    model = load_frozen(
        options.weights,
        name=options.model,
        image_size=options.image_size,
        num_classes=dataset.num_classes,
        **arguments,
    )
    results, rows = {}, []
    for name in (dataset.name, *further):
        score = published.by_dataset.get(name)
        shown = "–" if score is None else f"{score:.2f}"
        if name not in splits:
            rows.append((f"{name} {text}", "–", "not prepared", shown, "–"))
            continue
        result = results[name] = _measure(model, splits[name], options)
        top1 = 100 * result["top1"]
        difference = "–" if score is None else f"{top1 - score:+.2f}"
        rows.append((f"{name} {text}", result["count"], f"{top1:.2f}", shown, difference))
    _write(results, options)
    columns = ("data set", "images", "top-1 %", "published %", "difference")
    # Longer than the table is wide.
    print(f"Accuracy of {options.weights} at {options.image_size} pixels")
    Table(columns, rows).show()
    print(f"Published: {published.source or 'nothing that is known here; see --index'}.")
    print(f"Images: {options.preprocess or model.preprocess}")
    for text in missing:
        print(f"\n{text}")


main = command_main(_parser, _evaluate)

if __name__ == "__main__":
    sys.exit(main())
