"""`python -m training evaluate SOURCE`: accuracy of a model on every image of a split.

Reports top-1 and top-5 accuracy, counted over every image of the split. On ImageNet's ReaL labels
(imagenet2012_real) a prediction is correct if it is among the image's labels, and images without
any are left out.

With --weights SOURCE is the data set, and accuracies stand beside the published ones; imagenet2012
also stands for its ReaL labels and for ImageNet-V2, where they are prepared.

  python -m training evaluate runs/finetune --dataset=cifar10 --data_dir=DIR
  python -m training evaluate ViT-B_16.npz --model=ViT-B/16 --dataset=imagenet2012 --data_dir=DIR
  python -m training evaluate imagenet2012 --weights=augreg/B_16-imagenet2012 --data_dir=DIR
"""

import json
import sys

from training.command_options import CommandParser
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
    parser.add_argument("--split", default="test", help="default test")
    parser.add_argument("--loss", choices=("softmax", "sigmoid"), default="softmax")
    parser.add_argument("--per_class", action="store_true", help="also print a row for each class")
    parser.add_path("--output", "for metrics.json, and per_class.csv and confusion.csv by data set")
    return parser


def _evaluate(options):
    if options.weights:
        return _evaluate_published(options)
    if not options.dataset:
        raise UsageError("Expected --dataset=NAME, the data sets to evaluate on. Received: none.")
    import_tensorflow()
    from training.data import dataset_lookup
    from training.evaluators.frozen_model import load_frozen
    from training.reporting.table import Table

    specs = [dataset_lookup.get(name, options.data_dir) for name in options.dataset]
    model = load_frozen(
        options.source,
        name=options.model,
        image_size=options.image_size,
        num_classes=specs[0].num_classes,
    )
    results = {name: _measure(model, name, options) for name in options.dataset}
    _write(results, options)
    rows = [
        (
            f"{name} {options.split}",
            result["count"],
            f"{100 * result['top1']:.2f}",
            f"{100 * result['top5']:.2f}",
            f"{result['loss']:.4f}",
        )
        for name, result in results.items()
    ]
    columns = ("data set", "images", "top-1 %", "top-5 %", "loss")
    Table(columns, rows, f"Accuracy of {model.name}").show()


def _measure(model, dataset, options):
    """Returns the metrics of a model on a data set, and prints those of classes if asked to."""
    from training.data import dataset_lookup, pipeline
    from training.evaluators import classification
    from training.evaluators.accuracy_metrics import per_class
    from training.io.track import track

    preprocess = options.preprocess or model.preprocess
    batches = pipeline.eval_dataset(
        name=dataset,
        split=options.split,
        preprocess=preprocess,
        batch_size=options.batch_size,
        data_dir=options.data_dir,
    )
    result = classification.evaluate(
        model.logits, track(batches, f"evaluating {dataset}"), loss=options.loss
    )
    names = dataset_lookup.get(dataset, options.data_dir).class_names
    classes = per_class(result["confusion"], names or model.class_names)
    if options.per_class:
        classes._replace(title=dataset).show()
    return {**result, "classes": classes, "split": options.split, "preprocess": preprocess}


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
    from training.data import dataset_lookup, random_access
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
    specs = [random_access.open_source(options.source, options.split, options.data_dir).spec]
    if specs[0].name == "imagenet2012":
        specs += [dataset_lookup.get(name) for name in ("imagenet2012_real", "imagenet_v2")]
    model = load_frozen(
        options.weights,
        name=options.model,
        image_size=options.image_size,
        num_classes=specs[0].num_classes,
        **arguments,
    )
    results, rows, missing = {}, [], []
    for spec in specs:
        score = published.by_dataset.get(spec.name)
        shown = "–" if score is None else f"{score:.2f}"
        try:
            result = results[spec.name] = _measure(model, spec.name, options)
        except NotPreparedError as error:
            rows.append((f"{spec.name} {options.split}", "–", "not prepared", shown, "–"))
            missing.append(str(error))
            continue
        top1 = 100 * result["top1"]
        difference = "–" if score is None else f"{top1 - score:+.2f}"
        rows.append(
            (f"{spec.name} {options.split}", result["count"], f"{top1:.2f}", shown, difference)
        )
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
