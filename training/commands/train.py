"""`keras-vit train`, or without the word: trains, or resumes, a model.

Trains the model that a config describes, on one device, several, several hosts or a TPU.
The same command resumes a run that was stopped or killed, at exactly the step it had saved.

  keras-vit --config=quickstart --workdir=runs/quickstart
  keras-vit --config=finetune:MODEL,DATASET --workdir=DIR
  keras-vit --config=pretrain:MODEL,DATASET --workdir=DIR \\
      --config.batch_size=256 --config.optimizer.base_lr=0.003 --config.strategy=mirrored

The run directory gets config.json, metrics.csv, checkpoints/, model.keras, report.html and, for the
program that `pip install tensorboard` brings, tensorboard/.
"""

import argparse

from ..command_line.options import CommandParser
from ..config.overrides import config_of
from ..io.quiet_start import import_tensorflow


def add_options(parser: CommandParser) -> None:
    parser.add_run()


def run(options: argparse.Namespace) -> None:
    config = config_of(options)
    import_tensorflow()
    from ..loop import trainer

    trainer.train(config, options.workdir)
    page = f", its page in {options.workdir}/report.html" if config.report else ""
    print(f"The model is in {options.workdir}/model.keras{page}")
