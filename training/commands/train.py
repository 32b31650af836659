"""`keras-vit train`: trains a model, or resumes a run. The word `train` may be left out.

Trains the model that a config describes, on one device, several, several hosts or a TPU. The same
command resumes a run that was stopped or killed, at exactly the step it had saved.

  keras-vit --config=quickstart --workdir=runs/quickstart
  keras-vit --config=finetune:MODEL,DATASET --workdir=DIR
  keras-vit train --workdir=DIR --finish
  keras-vit --config=pretrain:MODEL,DATASET --workdir=DIR \\
      --config.batch_size=256 --config.optimizer.base_lr=0.003 --config.strategy=mirrored

The run directory gets config.json, metrics.csv, checkpoints/, model.keras, report.html and, for the
program that `pip install tensorboard` brings, tensorboard/.
"""

import argparse

from ml_collections import ConfigDict

from ..command_line.options import CommandParser
from ..config.overrides import config_of
from ..errors import UsageError
from ..io.paths import any_path
from ..io.quiet_start import import_tensorflow
from ..source_facts import read_run_config


def add_options(parser: CommandParser) -> None:
    parser.add_run(required=False)
    text = "end the run in --workdir where it was stopped: evaluate it, write model.keras, report"
    parser.add_argument("--finish", action="store_true", help=text)


def run(options: argparse.Namespace) -> None:
    begun = any_path(options.workdir) / "config.json"
    if bool(options.config) == options.finish:
        raise UsageError(
            "Expected --config=FILE[:ARGUMENT], or --finish for a run that was stopped, whose own "
            f"config.json is taken. Received: {'both' if options.config else 'neither'}."
        )
    if options.finish and not begun.exists():
        expected = "Expected the directory of a run that was stopped with --finish"
        raise UsageError(f"{expected}. Received: {options.workdir}, without config.json.")
    before = read_run_config(begun) if options.finish else {}
    before.pop("data", None)
    config = config_of(options, ConfigDict(before) if before else None)
    import_tensorflow()
    from ..loop import trainer

    trainer.train(config, options.workdir, finish=options.finish)
    page = f", its page in {options.workdir}/report.html" if config.report else ""
    print(f"The model is in {options.workdir}/model.keras{page}")
