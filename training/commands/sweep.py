"""`keras-vit sweep`: the paper's fine-tuning protocol on one data set.

Trains every learning rate on part of the training set, scores it on the rest (the development
split), trains the best rate on the whole training set once per seed, and scores those runs on the
test split. Runs that have finished are kept, and an interrupted one is resumed, when the same
command is given again.

  keras-vit sweep --config=finetune:runs/pretrain,cifar10 \\
      --workdir=runs/cifar10 --data_dir=DIR

The working directory gets sweep.md, sweep.csv and sweep.png, and a run directory for each rate and
seed.
"""

import argparse

from ..command_line.options import CommandParser, above_0, list_of, number, whole
from ..config.overrides import config_of, refuse_chosen
from ..configs.finetune import row_of_table_4
from ..data import open_dataset
from ..io.quiet_start import import_tensorflow


def add_options(parser: CommandParser) -> None:
    parser.add_run()
    text = "learning rates; default those of Table 4 for the data set, or for CIFAR"
    parser.add_argument("--rates", type=list_of(above_0), help=text)
    text = "of the runs, separated by commas; default 0,1,2"
    parser.add_argument("--seeds", type=list_of(whole), default=[0, 1, 2], help=text)
    share = number(float, lambda share: 0 < share < 1, "a share above 0 and below 1")
    text = "share of the training split to score rates on, where the paper gives none"
    parser.add_argument("--development", type=share, default=0.1, help=text)


def run(options: argparse.Namespace) -> None:
    refuse_chosen(options.overrides, "optimizer.base_lr", "seed")
    config = config_of(options)
    if not config.eval_split:
        raise ValueError("Expected config.eval_split to name the test split. Received: ''.")
    dataset = open_dataset(config.dataset, config.data_dir or None)
    dataset.split(config.eval_split)  # or rates would train first

    import_tensorflow()
    from ..protocols import learning_rate_sweep as protocol

    workdir, seeds = options.workdir, options.seeds
    rates = options.rates or row_of_table_4(dataset.name).base_lrs
    parts = protocol.development_splits(dataset, config.train_split, options.development)
    names = protocol.FURTHER_TEST_SETS.get(dataset.name, ())
    further_sets = [open_dataset(name, config.data_dir or None) for name in names]
    found = protocol.transfer(config, workdir, dataset, rates=rates, seeds=seeds, development=parts)
    further = protocol.score_further_test_sets(config, workdir, further_sets, seeds)
    published = protocol.published_results(config.model.name, dataset.name)
    table = protocol.sweep_table(found, published, further)
    protocol.write_sweep(found, table, workdir)
    table.show()
    print(f"Written to {workdir}: sweep.md, sweep.csv, sweep.png")
