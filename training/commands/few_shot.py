"""`python -m training few_shot`: few-shot linear evaluation of a frozen model (section 4.1)."""

import sys

from training.commands import command
from training.evaluators import least_squares
from training.io.quiet_start import import_tensorflow

DESCRIPTION = """\
Solves a linear classifier on the frozen features of 1, 5, 10 and 25 images per class, for three
choices of them, and reports its accuracy on the test split. Nothing is trained. Features are
computed once for each model, data set and preprocessing, and kept on disk.

  python -m training few_shot --model=runs/pretrain --dataset=cifar10 --data_dir=DIR
"""


def main(arguments=None):
    """Runs the command and returns the exit status of the process."""
    options = _options().parse_args(arguments)
    return command.run(lambda: _evaluate(options))


def _options():
    parser = command.parser("training few_shot", DESCRIPTION)
    command.add_model(parser)
    parser.add_argument(
        "--dataset", required=True, type=command.list_of(str), help="names, separated by commas"
    )
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--train_split", help="where examples are chosen; default train")
    parser.add_argument("--test_split", help="what is classified; default test")
    parser.add_argument("--shots", type=command.list_of(int), default=least_squares.SHOTS)
    parser.add_argument("--seeds", type=command.list_of(int), default=least_squares.SEEDS)
    parser.add_argument(
        "--l2",
        type=_penalties,
        default=least_squares.L2,
        help="penalty, several, or `list` for 2^-10 to 2^19; default 2^10, as the authors' code",
    )
    parser.add_argument("--layer", help="output of the model; default its representation")
    parser.add_argument("--preprocess", help="operations on the images, joined by |")
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="also evaluate raw pixels (32x32) and the architecture of a run without training",
    )
    parser.add_argument("--cache_dir", help="where features are kept; default ~/.cache/keras-vit")
    parser.add_argument("--output", help="folder for few_shot.md and few_shot.csv")
    return parser


def _penalties(text):
    if text == "list":
        return list(least_squares.L2_LIST)
    values = command.list_of(float)(text)
    return values if len(values) > 1 else values[0]


_penalties.__name__ = "penalty"


def _evaluate(options):
    import_tensorflow()
    import pathlib

    from training.evaluators import features, few_shot
    from training.io import model_source
    from training.io.atomic import write_text
    from training.reporting.table import Table

    cache = options.cache_dir or features.default_directory()
    candidates = [(command.load(options, layer=options.layer), options.preprocess)]
    if options.baselines:
        if not options.checkpoint:
            fresh = model_source.untrained(options.model, layer=options.layer)
            candidates.append((fresh, options.preprocess))
        pixels = f"decode|resize({model_source.PIXELS})|value_range(-1,1)"
        candidates.append((model_source.raw_pixels(), pixels))
    results = {}
    for dataset in options.dataset:
        task = few_shot.task(dataset, options.train_split, options.test_split)
        for model, preprocess in candidates:
            results[dataset, model.name] = few_shot.evaluate(
                model,
                task,
                preprocess=preprocess,
                data_dir=options.data_dir,
                batch_size=options.batch_size,
                cache=cache,
                shots=options.shots,
                seeds=options.seeds,
                l2=options.l2,
            )

    table = few_shot.summary(results)
    table.show()
    if options.output:
        rows = [
            (dataset, model, result.shots, result.seed, result.l2, result.accuracy)
            for (dataset, model), found in results.items()
            for result in found
        ]
        every = Table(("dataset", "model", "shots", "seed", "l2", "accuracy"), rows)
        write_text(pathlib.Path(options.output) / "few_shot.md", table.markdown())
        write_text(pathlib.Path(options.output) / "few_shot.csv", every.csv())


if __name__ == "__main__":
    sys.exit(main())
