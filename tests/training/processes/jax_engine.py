"""Prints what JAX's engine says of one update of a model full of masks, on several meshes.

Eight simulated devices, XLA_FLAGS says. Also what it says of a split without batches, and of a
state of a version whose masks were others. A line of JSON: {"norms": {"MESH / MICRO-BATCHES": norm
of the gradient}, "empty": text, "older": {RATE: lines of the log}}.
"""

import json
import logging
import sys
import tempfile
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from tests.tiny_vit import tiny_vit
from training import config_keys
from training.engines.base import Engine, create_engine
from training.engines.jax import engine as jax_engine
from training.recipes.losses import build_loss
from training.recipes.optimizers import optimizer_of

BATCH = 16
RATES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
# (mesh, micro-batches), the first is what the others are held against.
DIVISIONS = [(None, 1), (None, 2), (None, 4), ((8, 1), 1), ((2, 4), 2), ((1, 8), 2)]

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(BATCH, 16, 16, 3)).astype("float32")
LABELS = np.eye(5, dtype="float32")[rng.integers(0, 5, BATCH)]


def make_engine(
    mesh: tuple[int, int] | None, accumulation_steps: int, folder: str, rate: float = 0.3
) -> Engine:
    data, fsdp = mesh or (1, 1)
    config = config_keys.complete(
        {
            "dataset": "digits",
            "batch_size": BATCH,
            "total_steps": 3,
            "strategy": "sharded" if mesh else "one",
            "mesh": {"data": data, "fsdp": fsdp},
            "accumulation_steps": accumulation_steps,
            "optimizer": {"name": "sgd", "base_lr": 0.05},
        }
    )
    config.optimizer.update(total_steps=3, warmup_steps=1)
    engine = create_engine(config)
    keras.utils.set_random_seed(1)
    engine.build(
        lambda: tiny_vit(num_layers=1, remat=True, **dict.fromkeys(RATES, rate)),
        lambda model: optimizer_of(config, model),
        build_loss("softmax"),
    )
    engine.restore(folder)
    return engine


def dataset(pipelines: int, pipeline: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors({"image": IMAGES, "label": LABELS}).repeat()


def older_states() -> dict[float, list[str]]:
    """Returns what restoring a state without the mark of today's masks adds to the log."""
    lines: list[str] = []
    logger = logging.getLogger("training")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.object(jax_engine, "MASKS", "unknown"):
            make_engine(None, 1, folder).save({})
        with mock.patch.object(logger, "warning", lambda text, *args: lines.append(text % args)):
            for rate in (0.0, 0.3):
                make_engine(None, 1, folder, rate)
                found[rate], lines[:] = list(lines), []
    return found


def main(folder: str) -> None:
    norms = {}
    for mesh, parts in DIVISIONS:
        engine = make_engine(mesh, parts, folder)
        report = engine.train(engine.make_batches(dataset), 2)
        norms[f"{mesh} / {parts}"] = report.gradient_norm
    sums = engine.make_split_sums(
        lambda logits, batch: keras.ops.sum(logits, axis=0), lambda *part: dataset(*part).take(0)
    )
    try:
        empty = str(sums())
    except ValueError as error:
        empty = f"ValueError: {error}"
    print(json.dumps({"norms": norms, "empty": empty, "older": older_states()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
