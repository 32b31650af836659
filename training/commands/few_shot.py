"""`python -m training few_shot SOURCE`: few-shot accuracy of a frozen model (section 4.1).

Solves a linear classifier on the frozen features of 1, 5, 10 and 25 images per class, for three
choices of them, and reports its accuracy on the test split. Nothing is trained. Features are
computed once for each model, data set and preprocessing, and kept on disk.

  python -m training few_shot runs/pretrain --dataset=cifar10 --data_dir=DIR
  python -m training few_shot runs/birds

Without --dataset, a run is scored on its own data: its training split and what it held out.
"""

import sys

from training.command_options import CommandParser, list_of, own_data
from training.evaluators import least_squares
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = CommandParser("python -m training few_shot", __doc__)
    parser.add_source()
    parser.add_dataset(required=False)
    parser.add_argument(
        "--train_split", help="where examples are chosen; default train, or the run's"
    )
    parser.add_argument("--test_split", help="what is classified; default test, or the run's")
    parser.add_argument("--shots", type=list_of(int), default=least_squares.SHOTS)
    parser.add_argument("--seeds", type=list_of(int), default=least_squares.SEEDS)
    parser.add_argument(
        "--l2",
        type=_penalties,
        default=least_squares.L2,
        help="penalty, several, or `list` for 2^-10 to 2^19; default 2^10, as the authors' code",
    )
    parser.add_argument("--layer", help="output of the model; default its representation")
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="also evaluate raw pixels (32x32) and the architecture of a run without training",
    )
    parser.add_path("--cache_dir", "where features are kept; default ~/.cache/keras-vit")
    parser.add_path("--output", "for few_shot.md and few_shot.csv")
    return parser


def _penalties(text):
    if text == "list":
        return list(least_squares.L2_LIST)
    values = list_of(float)(text)
    return values if len(values) > 1 else values[0]


_penalties.__name__ = "penalty"


def _evaluate(options):
    import_tensorflow()
    from training.evaluators import few_shot, frozen_model
    from training.io.atomic import write_text
    from training.io.paths import cache_folder
    from training.reporting.table import Table

    cache = options.cache_dir or cache_folder("features")
    tasks = _tasks(options)
    trained = frozen_model.load_frozen(
        options.source, name=options.model, image_size=options.image_size, layer=options.layer
    )
    candidates = [(trained, options.preprocess)]
    if options.baselines:
        if not options.model:
            fresh = frozen_model.untrained(options.source, layer=options.layer)
            candidates.append((fresh, options.preprocess))
        pixels = frozen_model.raw_pixels()
        candidates.append((pixels, pixels.preprocess))
    results = {}
    for task in tasks:
        for model, preprocess in candidates:
            results[task.name, model.name] = few_shot.evaluate(
                model,
                task,
                preprocess=preprocess,
                batch_size=options.batch_size,
                cache=cache,
                progress=True,
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
        write_text(options.output / "few_shot.md", table.markdown())
        write_text(options.output / "few_shot.csv", every.csv())


def _tasks(options):
    from training.data import open_dataset
    from training.evaluators.few_shot import open_task

    given = options.train_split, options.test_split
    if not options.dataset:
        dataset, config = own_data(options.source, options.data_dir)
        own = config["train_split"], config["eval_split"]
        return [open_task(dataset, *(a or b for a, b in zip(given, own, strict=True)))]
    return [open_task(open_dataset(name, options.data_dir), *given) for name in options.dataset]


main = command_main(_parser, _evaluate)

if __name__ == "__main__":
    sys.exit(main())
