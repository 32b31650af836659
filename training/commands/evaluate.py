"""`keras-vit evaluate SOURCE`: accuracy of a model on every image of a split.

Reports top-1 and top-5 accuracy, counted over every image of the split. On ImageNet's ReaL labels
(imagenet2012_real) a prediction is correct if it is among the image's labels, and images without
any are left out.

Without --dataset, a run is evaluated on what it held out of its own data. Where the classes of a
data set are those of the model in another order, they are matched by name; others are refused.

With --weights SOURCE is the data set, and accuracies stand beside the published ones; imagenet2012
also stands for its ReaL labels and for ImageNet-V2, where they are prepared.

  keras-vit evaluate runs/birds
  keras-vit evaluate runs/finetune --dataset=cifar10 --data_dir=DIR
  keras-vit evaluate ViT-B_16.npz --model=ViT-B/16 --dataset=imagenet2012 --data_dir=DIR
  keras-vit evaluate imagenet2012 --weights=augreg/B_16-imagenet2012 --data_dir=DIR
"""

import json

from keras_vit.training.command_options import CommandParser, own_split
from keras_vit.training.exit_status import command_main
from keras_vit.training.io.quiet_start import import_tensorflow


def _parser():
    parser = CommandParser("keras-vit evaluate", __doc__)
    parser.add_source()
    parser.add_dataset()
    text = "published checkpoint to compare with its published score"
    parser.add_argument("--weights", metavar="NAME", help=text)
    text = "AugReg's index.csv, with all its scores; default ~/.keras/keras_vit/augreg/index.csv"
    parser.add_argument("--index", metavar="FILE", help=text)
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
    from keras_vit.training.evaluators.evaluated_model import load_frozen
    from keras_vit.training.io.printed_table import Table

    checkpoint = {"name": options.model, "image_size": options.image_size}
    num_classes = splits[0].dataset.num_classes
    model = load_frozen(options.source, **checkpoint, num_classes=num_classes)
    results = {split.dataset.name: _measure(model, split, options) for split in splits}
    _write(results, options)
    rows = []
    for name, result in results.items():
        top1, top5 = (f"{100 * result[key]:.2f}" for key in ("top1", "top5"))
        row = f"{name} {result['split']}", result["count"], top1, top5, f"{result['loss']:.4f}"
        rows.append(row)
    columns = ("data set", "images", "top-1 %", "top-5 %", "loss")
    Table(columns, rows, f"Accuracy of {model.name}").show()


def _splits(options):
    from keras_vit.training import data

    if options.dataset:
        split = options.split or "test"
        return [data.open(name, split, options.data_dir) for name in options.dataset]
    return [own_split(options)]


def _measure(model, split, options):
    """Returns the metrics of a model on a split, and prints those of classes if asked to."""
    from keras_vit.training.evaluators import classification
    from keras_vit.training.io.progress_bar import track

    preprocess = options.preprocess or model.preprocess
    name, class_names = split.dataset.name, split.dataset.class_names
    batches = split.evaluate(split.preprocess(preprocess), batch_size=options.batch_size)
    shown = track(batches, f"evaluating {name}")
    order = classification.class_order(model.class_names, class_names, name)
    result = classification.evaluate(model.logits, shown, loss=options.loss, classes=order)
    names = class_names or model.class_names
    classes = classification.per_class(result["confusion"], names)
    if options.per_class:
        classes._replace(title=name).show()
    return {**result, "classes": classes, "split": split.text, "preprocess": preprocess}


def _write(results, options):
    """Writes the files of --output."""
    from keras_vit.training.io.atomic import write_text
    from keras_vit.training.io.printed_table import Table

    if not options.output:
        return
    for dataset, result in results.items():
        confusion, classes = result.pop("confusion"), result.pop("classes")
        folder = options.output / dataset.replace("/", "_").replace(":", "_")
        write_text(folder / "per_class.csv", classes.csv())
        names = [row[0] for row in classes.rows]
        matrix = [(name, *counts) for name, counts in zip(names, confusion, strict=True)]
        write_text(folder / "confusion.csv", Table(("label", *names), matrix).csv())
    text = json.dumps(results, indent=2, sort_keys=True) + "\n"
    write_text(options.output / "metrics.json", text)


def _evaluate_published(options):
    import_tensorflow()
    from keras_vit.training.data import open_dataset
    from keras_vit.training.data.tfds_folder import NotPreparedError
    from keras_vit.training.evaluators.evaluated_model import load_frozen
    from keras_vit.training.evaluators.published_scores import architecture_of, published_scores
    from keras_vit.training.io.printed_table import Table
    from keras_vit.training.protocols.learning_rate_sweep import FURTHER_TEST_SETS

    published = published_scores(options.weights, options.index)
    checkpoint = {"name": options.model, "image_size": options.image_size}
    if not all(checkpoint.values()):
        named = architecture_of(options.weights)
        checkpoint["image_size"] = options.image_size or named.image_size
        if not options.model:
            checkpoint |= {"name": named.name, **named.arguments}
    dataset = open_dataset(options.source, options.data_dir)
    text = options.split or "test"
    splits, missing = {dataset.name: dataset.split(text)}, []
    further = FURTHER_TEST_SETS.get(dataset.name, ())
    for name in further:
        try:
            splits[name] = open_dataset(name, options.data_dir).split(text)
        except NotPreparedError as error:
            missing.append(str(error))
    model = load_frozen(options.weights, **checkpoint, num_classes=dataset.num_classes)
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
    print(f"Accuracy of {options.weights} at {checkpoint['image_size']} pixels")
    Table(columns, rows).show()
    print(f"Published: {published.source or 'nothing that is known here; see --index'}.")
    print(f"Images: {options.preprocess or model.preprocess}")
    for text in missing:
        print(f"\n{text}")


main = command_main(_parser, _evaluate)
