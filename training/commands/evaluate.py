"""`python -m training evaluate`: classification accuracy of a model on every image of a split."""

import sys

from training.commands import command
from training.io.quiet_start import import_tensorflow

DESCRIPTION = """\
Reports top-1 and top-5 accuracy, counted over every image of the split. On ImageNet's ReaL labels
(imagenet2012_real) a prediction is correct if it is among the image's labels, and images without
any are left out.

  python -m training evaluate --model=runs/finetune --dataset=cifar10 --data_dir=DIR
"""


def main(arguments=None):
    """Runs the command and returns the exit status of the process."""
    options = _options().parse_args(arguments)
    return command.run(lambda: _evaluate(options))


def _options():
    parser = command.parser("training evaluate", DESCRIPTION)
    command.add_model(parser)
    parser.add_argument(
        "--dataset", required=True, type=command.list_of(str), help="names, separated by commas"
    )
    parser.add_argument("--split", default="test")
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--preprocess", help="operations on the images; default resizes them")
    parser.add_argument("--loss", choices=("softmax", "sigmoid"), default="softmax")
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--per_class", action="store_true", help="also print a row for each class")
    parser.add_argument(
        "--output", help="folder for metrics.json, and per_class.csv and confusion.csv by data set"
    )
    return parser


def _evaluate(options):
    import_tensorflow()
    import json
    import pathlib

    from training.data import datasets, pipeline
    from training.evaluators import classification
    from training.evaluators.metrics import per_class
    from training.io.atomic import write_text
    from training.reporting.table import Table

    specs = [datasets.get(name, options.data_dir) for name in options.dataset]
    model = command.load(options, num_classes=specs[0].num_classes)
    preprocess = options.preprocess or _preprocess(options.model, model)
    rows, metrics = [], {}
    for dataset, spec in zip(options.dataset, specs, strict=True):
        batches = pipeline.eval_dataset(
            name=dataset,
            split=options.split,
            preprocess=preprocess,
            batch_size=options.batch_size,
            data_dir=options.data_dir,
        )
        result = classification.evaluate(model.logits, batches, loss=options.loss)
        confusion = result.pop("confusion")
        classes = per_class(confusion, spec.class_names)
        metrics[dataset] = {**result, "split": options.split, "preprocess": preprocess}
        rows.append(
            (
                f"{dataset} {options.split}",
                result["count"],
                f"{100 * result['top1']:.2f}",
                f"{100 * result['top5']:.2f}",
                f"{result['loss']:.4f}",
            )
        )
        if options.per_class:
            classes._replace(title=dataset).show()
        if options.output:
            folder = pathlib.Path(options.output) / dataset.replace("/", "_").replace(":", "_")
            write_text(folder / "per_class.csv", classes.csv())
            names = [row[0] for row in classes.rows]
            matrix = [(name, *counts) for name, counts in zip(names, confusion, strict=True)]
            write_text(folder / "confusion.csv", Table(("label", *names), matrix).csv())
    if options.output:
        text = json.dumps(metrics, indent=2, sort_keys=True) + "\n"
        write_text(pathlib.Path(options.output) / "metrics.json", text)
    columns = ("data set", "images", "top-1 %", "top-5 %", "loss")
    Table(columns, rows, f"Accuracy of {model.name}").show()


def _preprocess(source, model):
    """The preprocessing that a run was evaluated with, or a plain resize."""
    import json
    import pathlib

    config = pathlib.Path(source) / "config.json"
    if config.is_file():
        text = json.loads(config.read_text()).get("eval_preprocess")
        if text:
            return text
    height, width = model.image_size
    return f"decode|resize([{height},{width}])|{command.value_range(model.image_range)}"


if __name__ == "__main__":
    sys.exit(main())
