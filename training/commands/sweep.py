"""`python -m training sweep`: the paper's fine-tuning protocol on one data set."""

import sys

from training.commands import command
from training.io.quiet_start import import_tensorflow

DESCRIPTION = """\
Trains every learning rate on part of the training set, scores it on the rest (the development
split), trains the best rate on the whole training set once per seed, and scores those runs on the
test split. Runs that have finished are kept, and an interrupted one is resumed, when the same
command is given again.

  python -m training sweep --config=training/configs/finetune.py:runs/pretrain,cifar10 \\
      --workdir=runs/cifar10 --config.data_dir=DIR

Any key of the config is set with --config.KEY=VALUE. The working directory gets sweep.md,
sweep.csv and sweep.png, and a run directory for each rate and seed.
"""


def main(arguments=None):
    """Runs the command and returns the exit status of the process."""
    overrides, others = command.split_overrides(sys.argv[1:] if arguments is None else arguments)
    options = _options().parse_args(others)
    return command.run(lambda: _sweep(options, overrides))


def _options():
    parser = command.parser("training sweep", DESCRIPTION)
    parser.add_argument("--config", required=True, help="FILE[:ARGUMENT], as for training")
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--rates",
        type=command.list_of(float),
        help="learning rates; default those of Table 4 for the data set, or for CIFAR",
    )
    parser.add_argument("--seeds", type=command.list_of(int), default=[0, 1, 2])
    parser.add_argument(
        "--development",
        type=float,
        default=0.1,
        help="share of the training split to score rates on, where the paper gives none",
    )
    return parser


def _sweep(options, overrides):
    from training import config_flags, config_keys, paper
    from training.data import datasets
    from training.protocols import sweep
    from training.recipes import tables

    config = config_flags.override(config_flags.load_config(options.config), overrides)
    config = config_keys.complete(config)
    if not config.eval_split:
        raise ValueError("Expected config.eval_split to name the test split. Received: ''.")
    spec = datasets.get(config.dataset, config.data_dir or None)
    development = sweep.development_splits(spec, config.train_split, options.development)
    row = tables.FINE_TUNING.get(
        "vtab" if config.dataset.startswith("vtab/") else config.dataset,
        tables.FINE_TUNING["cifar10"],
    )

    import_tensorflow()
    found = sweep.transfer(
        config,
        options.workdir,
        rates=options.rates or row.base_lrs,
        seeds=options.seeds,
        development=development,
    )
    also = sweep.evaluate_also(config, options.workdir, options.seeds)
    table = sweep.summary(found, paper.results(config.model.name, config.dataset), also)
    sweep.write(found, table, options.workdir)
    table.show()
    print(f"Written to {options.workdir}: sweep.md, sweep.csv, sweep.png")


if __name__ == "__main__":
    sys.exit(main())
