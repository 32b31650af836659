"""`python -m training evaluate SOURCE`: accuracy of a model on every image of a split.

Reports top-1 and top-5 accuracy, counted over every image of the split. On ImageNet's ReaL labels
(imagenet2012_real) a prediction is correct if it is among the image's labels, and images without
any are left out.

  python -m training evaluate runs/finetune --dataset=cifar10 --data_dir=DIR
  python -m training evaluate ViT-B_16.npz --model=ViT-B/16 --dataset=imagenet2012 --data_dir=DIR
"""

import json
import sys

from training.command_options import CommandParser
from training.exit_status import command_main
from training.io.quiet_tensorflow import import_tensorflow


def _parser():
    parser = CommandParser("python -m training evaluate", __doc__)
    parser.add_source()
    parser.add_dataset()
    parser.add_argument("--split", default="test", help="default test")
    parser.add_argument("--loss", choices=("softmax", "sigmoid"), default="softmax")
    parser.add_argument("--per_class", action="store_true", help="also print a row for each class")
    parser.add_path("--output", "for metrics.json, and per_class.csv and confusion.csv by data set")
    return parser


def _evaluate(options):
    import_tensorflow()
    from training.data import dataset_lookup, pipeline
    from training.evaluators import classification
    from training.evaluators.frozen_model import load_frozen
    from training.evaluators.metrics import per_class
    from training.io.atomic import write_text
    from training.io.track import track
    from training.reporting.table import Table

    specs = [dataset_lookup.get(name, options.data_dir) for name in options.dataset]
    model = load_frozen(
        options.source,
        name=options.model,
        image_size=options.image_size,
        num_classes=specs[0].num_classes,
    )
    preprocess = options.preprocess or model.preprocess
    rows, metrics = [], {}
    for dataset, spec in zip(options.dataset, specs, strict=True):
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
        confusion = result.pop("confusion")
        classes = per_class(confusion, spec.class_names or model.class_names)
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
            folder = options.output / dataset.replace("/", "_").replace(":", "_")
            write_text(folder / "per_class.csv", classes.csv())
            names = [row[0] for row in classes.rows]
            matrix = [(name, *counts) for name, counts in zip(names, confusion, strict=True)]
            write_text(folder / "confusion.csv", Table(("label", *names), matrix).csv())
    if options.output:
        text = json.dumps(metrics, indent=2, sort_keys=True) + "\n"
        write_text(options.output / "metrics.json", text)
    columns = ("data set", "images", "top-1 %", "top-5 %", "loss")
    Table(columns, rows, f"Accuracy of {model.name}").show()


main = command_main(_parser, _evaluate)

if __name__ == "__main__":
    sys.exit(main())
