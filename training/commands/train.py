"""`python -m training train`, or without the word: trains, or resumes, a model."""

import logging
import sys

from training.errors import TrainingError
from training.io.quiet_start import import_tensorflow

HELP = """\
usage: python -m training [train] --config=FILE[:ARGUMENT] --workdir=DIR [--config.KEY=VALUE ...]

Trains the model that a config describes, on one device, several, several hosts or a TPU.
The same command resumes a run that was stopped or killed, at exactly the step it had saved.

  --config=FILE[:ARGUMENT]  Python file with get_config(ARGUMENT); the ones provided are
                              training/configs/quickstart.py
                              training/configs/finetune.py:MODEL,DATASET
                              training/configs/pretrain.py:MODEL,DATASET
  --config.KEY=VALUE        replaces a value of the config, for example
                              --config.batch_size=256 --config.optimizer.base_lr=0.003
                              --config.strategy=mirrored (or one, multiworker, tpu)
  --workdir=DIR             run directory: config.json, metrics.csv, tensorboard/,
                            checkpoints/, model.keras and report.html

All keys of a config: training/config_keys.py.
"""


def main(arguments=None):
    """Runs the command and returns the exit status of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or {"--help", "-h", "--helpfull"} & set(arguments):
        print(HELP, end="")
        return 0
    from training import config_flags, config_keys

    try:
        config, workdir = config_flags.parse(arguments)
        config_keys.complete(config)
        return _train(config, workdir)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _train(config, workdir):
    import_tensorflow()
    _log_to_stderr()
    from training.loop import trainer

    trainer.train(config, workdir)
    print(f"The model is in {workdir}/model.keras")
    return 0


def _log_to_stderr():
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("training")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
