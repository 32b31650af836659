"""Trains small models with JAX's engine on the meshes named on the command line.

Run as a process of its own, since backend and devices are fixed when it starts:
`jax_equivalence.py OUTPUT DATAxFSDP... [-- COORDINATOR COUNT INDEX]`, "one" for a single device.
"""

import itertools
import pathlib
import sys

import numpy as np
import tensorflow as tf

from tests.tiny_vit import tiny_vit
from training import config_keys
from training.engines.base import create_engine
from training.evaluators import accuracy_metrics
from training.recipes import freezing, low_rank
from training.recipes.losses import build_loss
from training.recipes.optimizers import optimizer_of

STEPS, BATCH, CLASSES = 30, 16, 5
SGD = {"name": "sgd", "base_lr": 0.05, "clip_norm": 0.5}
FINE_TUNING = {"optimizer": SGD | {"layer_decay": 0.5}, "label_smoothing": 0.1}
CONFIGS = {
    "sgd": {"optimizer": SGD, "accumulation_steps": 2, "ema_decay": 0.9},
    "adamw": {"optimizer": {"name": "adamw", "base_lr": 1e-3, "weight_decay": 0.1}},
    "random": {"optimizer": SGD},
    "frozen": {**FINE_TUNING, "freeze": {"blocks": 1}},
    "lora": FINE_TUNING,
}
MODELS = {
    "random": {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "stochastic_depth_rate": 0.2},
    "lora": {"remat": True},
}
# Cases that go on on another mesh.
MOVED = ("random", "adamw")

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(64, 16, 16, 3)).astype("float32")
LABELS = np.eye(CLASSES, dtype="float32")[rng.integers(0, CLASSES, 64)]
MASK = (np.arange(64) < 53).astype("float32")


def train_dataset(first, pipelines, pipeline):
    share = BATCH // pipelines
    images = IMAGES.reshape(-1, pipelines, share, 16, 16, 3)[:, pipeline]
    labels = LABELS.reshape(-1, pipelines, share, CLASSES)[:, pipeline]
    dataset = tf.data.Dataset.from_tensor_slices({"image": images, "label": labels})
    return dataset.repeat().skip(first)


def eval_dataset(pipelines, pipeline):
    data = {"image": IMAGES, "label": LABELS, "mask": MASK}
    data = {
        key: value.reshape(-1, pipelines, 16 // pipelines, *value.shape[1:])[:, pipeline]
        for key, value in data.items()
    }
    return tf.data.Dataset.from_tensor_slices(data)


def make_engine(case, mesh, processes, directory):
    strategy = "one" if mesh == "one" else "sharded"
    data, fsdp = (1, 1) if mesh == "one" else map(int, mesh.split("x"))
    config = config_keys.complete(
        {
            "dataset": "digits",
            "batch_size": BATCH,
            "total_steps": STEPS,
            "steps_per_call": 4,
            "strategy": strategy,
            "mesh": {"data": data, "fsdp": fsdp},
            "processes": processes,
            **CONFIGS[case],
        }
    )
    config.optimizer.update(total_steps=40, warmup_steps=3)
    engine = create_engine(config)

    def make_model():
        model = tiny_vit(**MODELS.get(case, {}))
        if case == "lora":
            low_rank.adapt(model, rank=2)
        freezing.freeze_for_good(model, config.freeze)
        return model

    import keras

    keras.utils.set_random_seed(1)
    engine.build(
        make_model,
        lambda model: optimizer_of(config, model),
        build_loss("softmax", config.label_smoothing),
    )
    engine.restore(directory)
    return engine


def train(engine, calls):
    batches = engine.make_batches(lambda *worker: train_dataset(engine.step, *worker))
    return [engine.train(batches, count).loss for count in calls]


def weights_of(engine, case):
    """Returns all weights; of AdamW's without key biases, which cancel in the softmax.

    Their gradients are nothing but rounding, which Adam turns into steps.
    """
    with engine.averaged_weights() as model:
        kept = [w for w in model.weights if (case, w.path[-8:]) != ("adamw", "key/bias")]
        return np.concatenate([np.ravel(weight.numpy()) for weight in kept])


def run(case, mesh, processes, directory):
    engine = make_engine(case, mesh, processes, directory)
    losses = train(engine, [2] * (STEPS // 2))
    loss = build_loss("softmax")

    def batch_sums(logits, batch):
        return accuracy_metrics.counted_sums(logits, batch["label"], batch["mask"], loss)

    split_sums = engine.make_split_sums(batch_sums, eval_dataset)
    with engine.averaged_weights():
        evaluation = accuracy_metrics.means(split_sums())
    engine.save({"numbers": np.arange(3.0) / 7})
    return engine, {
        f"{case}/losses": losses,
        f"{case}/count": evaluation["count"],
        f"{case}/evaluation": [evaluation[name] for name in ("loss", "top1", "top5")],
        f"{case}/weights": weights_of(engine, case),
        f"{case}/rate": engine.learning_rate,
    }


def main(output, *arguments):
    meshes, _, joined = " ".join(arguments).partition(" -- ")
    processes = {}
    if joined:
        coordinator, count, index = joined.split()
        processes = {"coordinator": coordinator, "count": int(count), "index": int(index)}
    # The processes of a job share their folder.
    output = pathlib.Path(output)
    folder = output.parents[1] / "states" if joined else output.with_suffix("")
    results, first = {}, None
    meshes = meshes.split()
    for mesh in meshes:
        for case in CONFIGS:
            # A process joins its job once.
            engine, found = run(case, mesh, {} if first else processes, folder / mesh / case)
            first = first or engine
            results |= {f"{mesh}/{key}": value for key, value in found.items()}
    if not joined:
        # What one mesh saved goes on on each of the others.
        moves = zip(meshes, meshes[1:] + meshes[:1], strict=True)
        for (before, after), case in itertools.product(moves, MOVED):
            engine = make_engine(case, after, processes, folder / before / case)
            results[f"{before} to {after}/{case}/losses"] = train(engine, [4, 3, 1])
            results[f"{before} to {after}/{case}/weights"] = weights_of(engine, case)
    first.close()
    np.savez(output, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
