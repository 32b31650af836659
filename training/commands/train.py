"""`python -m training train`, or without the word: trains, or resumes, a model.

Trains the model that a config describes, on one device, several, several hosts or a TPU.
The same command resumes a run that was stopped or killed, at exactly the step it had saved.

  python -m training --config=training/configs/quickstart.py --workdir=runs/quickstart
  python -m training --config=training/configs/finetune.py:MODEL,DATASET --workdir=DIR
  python -m training --config=training/configs/pretrain.py:MODEL,DATASET --workdir=DIR \\
      --config.batch_size=256 --config.optimizer.base_lr=0.003 --config.strategy=mirrored

The run directory gets config.json, metrics.csv, checkpoints/, model.keras, report.html and, for the
program that `pip install tensorboard` brings, tensorboard/.
"""

import sys

from training.command_options import CommandParser, complete_config
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = CommandParser("python -m training train", __doc__)
    parser.add_run()
    return parser


def _train(options):
    from training import config_command_line

    config = complete_config(config_command_line.load_config(options.config), options)
    import_tensorflow()
    from training.loop import trainer

    trainer.train(config, options.workdir)
    page = f", its page in {options.workdir}/report.html" if config.report else ""
    print(f"The model is in {options.workdir}/model.keras{page}")


main = command_main(_parser, _train)

if __name__ == "__main__":
    sys.exit(main())
