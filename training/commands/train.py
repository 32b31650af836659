"""`keras-vit train`: trains a model, or resumes a run. The word `train` may be left out.

Trains the model that a config describes, on one device, several, several hosts or a TPU. The same
command resumes a run that was stopped or killed, at exactly the step it had saved.

  keras-vit --config=quickstart --workdir=runs/quickstart
  keras-vit --config=finetune:MODEL,DATASET --workdir=DIR
  keras-vit train --workdir=DIR --finish
  keras-vit train --config=FILE --workdir=DIR --seeds=0,1,2
  keras-vit --config=pretrain:MODEL,DATASET --workdir=DIR \\
      --config.batch_size=256 --config.optimizer.base_lr=0.003 --config.strategy=mirrored

The run directory gets config.json, metrics.csv, checkpoints/, model.keras, report.html and, for the
program that `pip install tensorboard` brings, tensorboard/. --seeds trains runs that differ in
their seed alone, each in a folder of its own, and writes mean and deviation into seeds.csv.
"""

import argparse

from ml_collections import ConfigDict

from ..command_line.options import CommandParser, list_of, whole
from ..config.overrides import config_of, refuse_chosen
from ..data import open_dataset
from ..errors import UsageError
from ..io.atomic import write_text
from ..io.paths import any_path
from ..io.printed_table import Table
from ..io.quiet_start import import_tensorflow
from ..paper_tables import MeanDeviation
from ..source_facts import read_run_config, runs_inside
from ..tasks import task_of


def add_options(parser: CommandParser) -> None:
    parser.add_run(required=False)
    text = "end the run in --workdir where it was stopped: evaluate it, write model.keras, report"
    parser.add_argument("--finish", action="store_true", help=text)
    text = "train a run for each of these seeds, separated by commas, one after the other"
    parser.add_argument("--seeds", type=list_of(whole), help=text)


def run(options: argparse.Namespace) -> None:
    begun = any_path(options.workdir) / "config.json"
    if not (options.config or options.finish):
        raise UsageError(
            "Expected --config=FILE[:ARGUMENT], or --finish for a run that was stopped, whose own "
            "config.json is taken. Received: neither."
        )
    if options.finish and not begun.exists():
        expected = "Expected the directory of a run that was stopped with --finish"
        received = f"{options.workdir}, without config.json{runs_inside(begun.parent)}"
        raise UsageError(f"{expected}. Received: {received}.")
    if options.seeds:
        return _train_seeds(options, begun)
    before = {} if options.config else read_run_config(begun)
    before.pop("data", None)
    config = config_of(options, ConfigDict(before) if before else None)
    import_tensorflow()
    from ..loop import trainer

    trainer.train(config, options.workdir, finish=options.finish)
    page = f", its page in {options.workdir}/report.html" if config.report else ""
    print(f"The model is in {options.workdir}/model.keras{page}")


def _train_seeds(options, begun):
    """Trains a run for each of --seeds, and writes what their models reach."""
    refuse_chosen(options.overrides, "seed")
    wrong = "--finish" if options.finish else f"{options.workdir}, a run" if begun.exists() else ""
    if wrong or len(options.seeds) < 2:
        expected = "Expected two seeds or more, as --seeds=0,1,2, in a --workdir that is no run"
        raise UsageError(f"{expected}. Received: {wrong or options.seeds[0]}.")
    config = config_of(options)
    if not config.eval_split:
        raise UsageError("Expected config.eval_split to name what is scored. Received: ''.")
    dataset = open_dataset(config.dataset, config.data_dir or None)
    import_tensorflow()
    from ..protocols.train_unless_finished import same_weights, train_seeds

    with same_weights(config.checkpoint):
        found = dict(train_seeds(config, options.workdir, dataset, options.seeds))
    rows: list[tuple] = [
        (f"seed_{seed}", "diverged" if each.diverged else f"{each.percent:.2f}", each.count)
        for seed, each in found.items()
    ]
    if not any(each.diverged for each in found.values()):  # The others would flatter the config.
        mean = MeanDeviation.of(each.percent for each in found.values())
        rows.append((f"mean of {len(rows)}", str(mean), ""))
    table = Table(("run", task_of(config).main.heading, "images"), rows, config.dataset)
    write_text(options.workdir / "seeds.csv", table.csv())
    table.show()
    print(f"Written to {options.workdir}/seeds.csv")
