"""Time to import, build a model, load a checkpoint and begin a run, in new processes.

Prints Markdown.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import tempfile
import time
from unittest import mock

from benchmarks.harness.process import Process

LABELS = {
    "keras": "`import keras`",
    "keras_vit": "`import keras_vit` after it",
    "build": "build the model",
    "load": "load an official checkpoint",
    "imported": "`keras-vit`: imports",
    "first_step": "`keras-vit`: until the trace of the first step begins",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="ViT-B/16", help="a name, for example ViT-Ti/16")
    text = "new processes; medians over them are printed"
    parser.add_argument("--rounds", type=int, default=7, help=text)


def run(options: argparse.Namespace) -> None:
    model, rounds = options.model, options.rounds
    # Not at the top: the new processes import this file, and time imports.
    from benchmarks.harness.command_line import machine, show
    from keras_vit.training.io.progress_bar import track

    print(f"{model}; medians of {rounds} new processes.")
    print(machine(), "\n", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "checkpoint.npz"
        turns = []
        for turn in track(range(rounds + 1), "starting"):
            with Process(f"{__name__}:load", {"model": model, "file": str(file)}) as process:
                facts = process.facts
            with Process(f"{__name__}:train", {"workdir": f"{directory}/{turn}"}) as process:
                turns.append(facts | process.facts)
    # The first process has written the checkpoint.
    median = {key: statistics.median(turn[key] for turn in turns[1:]) for key in turns[1]}
    show({"": label, "seconds": f"{median[key]:.2f}"} for key, label in LABELS.items())


def load(model: str, file: str) -> tuple[dict[str, float], None]:
    """Returns the seconds of imports, building a model, and loading `file`, made if absent."""
    facts: dict[str, float] = {}
    with _timed(facts, "keras"):
        import keras
    with _timed(facts, "keras_vit"):
        import keras_vit
        import keras_vit.public_names
    ones = keras.ops.ones((64, 64))
    keras.ops.convert_to_numpy(keras.ops.matmul(ones, ones))
    with _timed(facts, "build"):
        built = keras_vit.create_model(model, num_classes=1000)
    if not os.path.exists(file):
        keras_vit.save_checkpoint(built, file)
    with _timed(facts, "load"):
        keras_vit.load_checkpoint(built, file)
    return facts, None


def train(workdir: str) -> tuple[dict[str, float], None]:
    """Returns the seconds until TensorFlow is `imported` and the `first_step` begins."""
    start = time.perf_counter()
    facts: dict[str, float] = {}
    with _timed(facts, "imported"):
        from keras_vit.training.config import overrides
        from keras_vit.training.errors import Interrupted
        from keras_vit.training.io.quiet_start import import_tensorflow

        config = overrides.load_config("quickstart")
        import_tensorflow()
    from keras_vit.training.engine.tensorflow import TensorFlowEngine
    from keras_vit.training.loop import trainer

    def first_step(*_, **__):
        facts["first_step"] = time.perf_counter() - start
        raise Interrupted("The first step has begun.")

    with mock.patch.object(TensorFlowEngine, "train", first_step), contextlib.suppress(Interrupted):
        trainer.train(config, workdir)
    return facts, None


@contextlib.contextmanager
def _timed(facts, name):
    start = time.perf_counter()
    yield
    facts[name] = time.perf_counter() - start
