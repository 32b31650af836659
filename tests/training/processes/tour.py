"""`tour.py TASK DATA_DIR LEG...` trains the legs of a run, each under a strategy of its own.

A leg is a list in JSON: the run directory, the step to stop after or 0, what its config changes,
and where the run is copied then, if anywhere.
"""

import contextlib
import json
import logging
import os
import shutil
import signal

import keras

from keras_vit.training.config import overrides
from keras_vit.training.configs import masked
from keras_vit.training.errors import Interrupted
from keras_vit.training.loop import trainer
from tests.training.small_engine import give_tensorflow_two_devices

TINY = os.path.join(os.path.dirname(__file__), "tiny.py")
STEPS = 40


def config_of(task):
    config = overrides.load_config(TINY)
    if task == "masked":
        model = config.model
        config = masked.get_config(f"small,digits,steps={STEPS},size=16")
        config.model.update(model)
        config.batch_size = 16
    config.model.attention_dropout_rate = config.model.stochastic_depth_rate = 0.1
    # Adam turns rounding into steps, where a gradient is nothing else.
    config.optimizer.update(name="sgd", base_lr=0.05)
    config.update(steps_per_call=2, total_steps=STEPS, log_every_steps=10)
    config.eval_every_steps = config.checkpoint_every_steps = 0
    return config


class Stop(logging.Handler):
    """Asks this process to stop, as a scheduler would, once the step of its name is in the log."""

    def emit(self, record):
        if record.getMessage().startswith(f"step {self.name}/"):
            os.kill(os.getpid(), signal.SIGTERM)


def main(task, data_dir, *legs):
    logger = logging.getLogger("keras_vit")
    logger.setLevel(logging.INFO)
    if keras.backend.backend() == "tensorflow" and "TF_CONFIG" not in os.environ:
        give_tensorflow_two_devices()
    for workdir, stop, changes, *copies in map(json.loads, legs):
        config = config_of(task)
        config.update({"data_dir": data_dir, **changes})
        logger.addHandler(handler := Stop())
        handler.name = str(stop)
        with contextlib.suppress(Interrupted) if stop else contextlib.nullcontext():
            trainer.train(config, workdir)
        logger.removeHandler(handler)
        for copy in copies:
            shutil.copytree(workdir, copy)
