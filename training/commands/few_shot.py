"""`keras-vit few_shot SOURCE`: few-shot accuracy of a frozen model (section 4.1).

Solves a linear classifier on the frozen features of 1, 5, 10 and 25 images per class, for three
choices of them, and reports its accuracy on the test split. Nothing is trained. Features are
computed once for each model, data set and preprocessing, and kept on disk.

  keras-vit few_shot runs/pretrain --dataset=cifar10 --data_dir=DIR
  keras-vit few_shot runs/birds

Without --dataset, a run is scored on its own data: its training split and what it held out.
"""

import argparse
import itertools

from ..command_line.data_of_run import own_data
from ..command_line.options import CommandParser, at_least_0, at_least_1, list_of, whole
from ..data import open_dataset
from ..data.opened_dataset import warn_of_trained
from ..io.atomic import write_text
from ..io.paths import cache_folder
from ..io.printed_table import Table
from ..io.quiet_start import import_tensorflow
from ..paper_tables import L2_SWEEP
from ..source_facts import runs_behind


def add_options(parser: CommandParser) -> None:
    parser.add_source()
    parser.add_dataset()
    text = "where examples are chosen; default train, or the run's"
    parser.add_argument("--train_split", help=text)
    parser.add_argument("--test_split", help="what is classified; default test, or the run's")
    text = "examples of each class; default 1,5,10,25; a class with fewer gives all"
    parser.add_argument("--shots", type=list_of(at_least_1), help=text)
    text = "one choice of examples for each number; default 0,1,2"
    parser.add_argument("--seeds", type=list_of(whole), help=text)
    text = "penalty, several, or `list` for 2^-10 to 2^19; default 2^10, as the authors' code"
    parser.add_argument("--l2", type=_penalties, help=text)
    parser.add_argument("--layer", help="output of the model; default its representation")
    text = "also the accuracy by the N nearest training images, at DINO's temperature; 20 as there"
    parser.add_argument("--knn", metavar="N", type=at_least_1, help=text)
    text = "also a classifier of all training images, its penalty chosen on a fifth of them"
    parser.add_argument("--probe", action="store_true", help=text)
    text = "also evaluate raw pixels (32x32) and the architecture of a run without training"
    parser.add_argument("--baselines", action="store_true", help=text)
    parser.add_path("--cache_dir", "where features are kept; default ~/.cache/keras-vit", "change")
    parser.add_path("--output", "for few_shot.md and few_shot.csv")


def _penalties(text):
    if text == "list":
        return list(L2_SWEEP)
    values = list_of(at_least_0)(text)
    return values if len(values) > 1 else values[0]


_penalties.__name__ = "penalty"


def run(options: argparse.Namespace) -> None:
    import_tensorflow()
    from ..evaluators import few_shot
    from ..evaluators.nearest_neighbors import knn_accuracy
    from ..inference.image_function import RawPixels
    from ..inference.open_model import open_source, untrained

    tasks = _tasks(options)
    for run, config in runs_behind(options.source):
        for task in tasks:
            warn_of_trained(task.test, run, config)
    given = {"name": options.model, "image_size": options.image_size, "layer": options.layer}
    candidates = [(open_source(options.source, **given), options.preprocess)]
    if options.baselines and not options.model:
        fresh = untrained(options.source, layer=options.layer)
        candidates.append((fresh, options.preprocess))
    if options.baselines:
        pixels = RawPixels()
        candidates.append((pixels, pixels.interface.preprocessing))
    cache = options.cache_dir or cache_folder("features")
    settings = {name: getattr(options, name) for name in ("batch_size", "shots", "seeds", "l2")}
    settings = {name: value for name, value in settings.items() if value is not None}
    reading = {"batch_size": settings.pop("batch_size"), "cache": cache, "progress": True}
    results: dict[tuple[str, str], few_shot.Accuracies] = {}
    more: dict[tuple[str, str], dict[str, str]] = {}
    rows: list[tuple] = []
    for task, (model, preprocess) in itertools.product(tasks, candidates):
        both = few_shot.features_of_task(model, task, preprocess=preprocess, **reading)
        key, classes = (task.name, model.name), task.train.dataset.num_classes
        results[key] = few_shot.evaluate_features(*both, classes, **settings)
        rows += [(*key, *case, accuracy) for case, accuracy in results[key].items()]
        more[key] = {}
        if options.knn:
            more[key]["k-NN %"] = f"{100 * knn_accuracy(*both, classes, options.knn):.2f}"
        if options.probe:
            accuracy, penalty = few_shot.linear_probe(*both, classes)
            more[key] |= {"probe %": f"{100 * accuracy:.2f}", "its l2": f"{penalty:g}"}
            rows.append((*key, "all", "", penalty, accuracy))
    table = few_shot.summary(results, more)
    table.show()
    if options.output:
        every = Table(("dataset", "model", "shots", "seed", "l2", "accuracy"), rows)
        write_text(options.output / "few_shot.md", table.markdown())
        write_text(options.output / "few_shot.csv", every.csv())


def _tasks(options):
    from ..evaluators.few_shot import open_task

    given, usual = (options.train_split, options.test_split), (None, None)
    if options.dataset:
        datasets = [open_dataset(name, options.data_dir) for name in options.dataset]
    else:
        dataset, config = own_data(options)
        datasets, usual = [dataset], (config["train_split"], config["eval_split"])
    splits = [a or b for a, b in zip(given, usual, strict=True)]
    return [open_task(dataset, *splits) for dataset in datasets]
