"""Trains small models under the strategies named on the command line and saves what came out.

Run as a process of its own, since devices and workers are fixed when TensorFlow starts:
`equivalence.py OUTPUT STRATEGY...`, under `TF_CONFIG` for `multiworker`.
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from ml_collections import ConfigDict

from tests.tiny_vit import tiny_vit
from training.engines.tensorflow import strategies
from training.engines.tensorflow.evaluation_sums import SplitSums
from training.engines.tensorflow.train_step import TrainSteps
from training.engines.tensorflow.training_checkpoints import Checkpoints
from training.evaluators import accuracy_metrics
from training.recipes.losses import build_loss
from training.recipes.optimizers import build_optimizer

STEPS, BATCH, CLASSES = 30, 16, 5
CASES = {
    "sgd": {"name": "sgd", "base_lr": 0.05, "clip_norm": 0.5, "ema_decay": 0.9},
    "adamw": {"name": "adamw", "base_lr": 1e-3, "weight_decay": 0.1},
    "random": {"name": "sgd", "base_lr": 0.05, "clip_norm": 0.5},
}
ACCUMULATION = {"sgd": 2, "adamw": 1, "random": 2}
RATES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(64, 16, 16, 3)).astype("float32")
LABELS = np.eye(CLASSES, dtype="float32")[rng.integers(0, CLASSES, 64)]
MASK = (np.arange(64) < 53).astype("float32")


def train_dataset(pipelines, pipeline):
    share = BATCH // pipelines
    batches = (
        IMAGES.reshape(-1, pipelines, share, 16, 16, 3),
        LABELS.reshape(-1, pipelines, share, CLASSES),
    )
    data = {"image": batches[0][:, pipeline], "label": batches[1][:, pipeline]}
    return tf.data.Dataset.from_tensor_slices(data).repeat()


def eval_dataset(pipelines, pipeline):
    data = {"image": IMAGES[:56], "label": LABELS[:56], "mask": MASK[:56]}
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True)
    # 7 batches: the last worker would be one short without a batch of nothing but padding.
    padding = {name: np.zeros((8, *value.shape[1:]), "float32") for name, value in data.items()}
    dataset = dataset.concatenate(tf.data.Dataset.from_tensors(padding))
    return dataset.shard(pipelines, pipeline)


def make(strategy, case):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        rates = dict.fromkeys(RATES if case == "random" else (), 0.2)
        model = tiny_vit(num_layers=1, **rates)
        optimizer = build_optimizer({"total_steps": 40, "warmup_steps": 3} | CASES[case])
        optimizer.build(model.trainable_variables)
    return TrainSteps(
        strategy,
        model,
        optimizer,
        build_loss("softmax"),
        batch_size=BATCH,
        accumulation_steps=ACCUMULATION[case],
    )


def run(strategy, case):
    steps = make(strategy, case)
    model, optimizer = steps.model, steps.optimizer
    batches = iter(strategies.distribute(strategy, train_dataset))
    losses = [steps(batches, 2).loss for _ in range(STEPS // 2)]
    if optimizer.use_ema:
        optimizer.swap_averages()

    def batch_sums(logits, batch):
        return accuracy_metrics.counted_sums(logits, batch["label"], batch["mask"], steps.loss)

    evaluation = accuracy_metrics.means(SplitSums(strategy, model, batch_sums, eval_dataset)())
    return {
        f"{case}/losses": losses,
        f"{case}/count": evaluation["count"],
        f"{case}/evaluation": [evaluation[name] for name in ("loss", "top1", "top5")],
        f"{case}/weights": np.concatenate([w.ravel() for w in model.get_weights()]),
    }


def move(before, after, case, directory):
    """Trains 20 steps under one strategy and 10 more, from its checkpoint, under another."""
    steps = make(before, case)
    steps(iter(strategies.distribute(before, train_dataset)), 20)
    Checkpoints(directory, {"model": steps.model, "optimizer": steps.optimizer}).save()

    steps = make(after, case)
    step = Checkpoints(directory, {"model": steps.model, "optimizer": steps.optimizer}).restore()

    def rest(*worker):
        return train_dataset(*worker).skip(step)

    batches = iter(strategies.distribute(after, rest))
    return [steps(batches, 2).loss for _ in range(5)]


def main(output, names):
    if "multiworker" not in names:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    results, used = {}, {}
    for name in names:
        strategy, watch = strategies.create_strategy(
            ConfigDict({"strategy": name, "peer_timeout": 40, "jit_compile": False})
        )
        used[name] = strategy
        results[f"{name}/replicas"] = strategy.num_replicas_in_sync
        for case in CASES:
            results |= {f"{name}/{k}": v for k, v in run(strategy, case).items()}
        strategies.gather(strategy, "")
        if watch:
            watch.stop()
    if {"one", "mirrored"} <= used.keys():
        one, mirrored = used["one"], used["mirrored"]
        for case in ("sgd", "random"):
            results[f"moved_up/{case}"] = move(one, mirrored, case, f"{output}-{case}-up")
            results[f"moved_down/{case}"] = move(mirrored, one, case, f"{output}-{case}-down")
    np.savez(output, **results)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
