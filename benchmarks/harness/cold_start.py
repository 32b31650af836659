"""What comes before the first step, timed in a new process that has imported little else."""

import contextlib
import os
import pathlib
import time
from typing import Any
from unittest import mock

from benchmarks.harness.machine import peak_memory


def load(model: str, file: str) -> tuple[dict[str, Any], None]:
    """Times the imports, building a model and loading a checkpoint.

    Args:
        model: a name that `keras_vit.create_model` knows.
        file: the checkpoint, loaded where it exists and else written.

    Returns:
        Seconds of `keras`, `keras_vit`, `build` and `load`, and in `held` the bytes of the model
        and of what loading it took beside.
    """
    times = [time.perf_counter()]
    import keras

    times.append(time.perf_counter())
    import keras_vit

    times.append(time.perf_counter())
    facts = {"keras": times[1] - times[0], "keras_vit": times[2] - times[1]}
    ones = keras.ops.ones((64, 64))
    keras.ops.convert_to_numpy(keras.ops.matmul(ones, ones))
    before = time.perf_counter()
    built = keras_vit.create_model(model, num_classes=1000)
    facts["build"] = time.perf_counter() - before
    if not os.path.exists(file):
        keras_vit.save_checkpoint(built, file)
        return facts, None
    page = os.sysconf("SC_PAGE_SIZE")
    resident = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * page
    before = time.perf_counter()
    keras_vit.load_checkpoint(built, file)
    facts["load"] = time.perf_counter() - before
    # The model was built before: its variables count as memory of the loaded model.
    weights = sum(int(keras.ops.size(weight)) * 4 for weight in built.weights)
    return {**facts, "held": peak_memory() - resident + weights}, None


def train(workdir: str) -> tuple[dict[str, Any], None]:
    """Times the start of a training command.

    Args:
        workdir: the run directory.

    Returns:
        Seconds until TensorFlow is `imported`, and until the first step's `tracing` begins.
    """
    start = time.perf_counter()
    from training import config_command_line
    from training.errors import Interrupted
    from training.io.quiet_start import import_tensorflow

    config = config_command_line.load_config("quickstart")
    import_tensorflow()
    facts = {"imported": time.perf_counter() - start}
    from training.engines.tensorflow.train_step import TrainSteps
    from training.loop import trainer

    def trace(*_):
        facts["tracing"] = time.perf_counter() - start
        raise Interrupted("The first step's trace has begun.")

    with mock.patch.object(TrainSteps, "_run", trace), contextlib.suppress(Interrupted):
        trainer.train(config, workdir)
    return facts, None
