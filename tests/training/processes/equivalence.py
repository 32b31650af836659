"""`equivalence.py OUTPUT PLACE... [-- COORDINATOR COUNT INDEX]` trains small models with an engine.

A place is a strategy, or "DATAxFSDP", a mesh.
"""

import functools
import itertools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_vit.training.recipes.trained_weights import adapt_low_rank, freeze_for_good
from keras_vit.training.tasks.classification import Classification
from tests.keras_vit.small import make_vit
from tests.tiny_vit import tiny_vit
from tests.training import small_engine
from tests.training.small_engine import random_batches

IN_TENSORFLOW = keras.backend.backend() == "tensorflow"
STEPS, BATCH = 30, 16
WARM = {"total_steps": 40, "warmup_steps": 3}
SGD = {"name": "sgd", "base_lr": 0.05, "clip_norm": 0.5, **WARM}
FINE_TUNING = {"optimizer": SGD | {"layer_decay": 0.5}, "label_smoothing": 0.1}
CONFIGS = {
    "sgd": {"optimizer": SGD, "accumulation_steps": 2, "ema_decay": 0.9},
    "adamw": {"optimizer": {"name": "adamw", "base_lr": 1e-3, "weight_decay": 0.1, **WARM}},
    # In TensorFlow's parts of two images, of which stochastic depth draws two numbers.
    "random": {"optimizer": SGD, "accumulation_steps": 4 if IN_TENSORFLOW else 2},
    "frozen": {**FINE_TUNING, "freeze": {"blocks": 1}},
    "lora": FINE_TUNING,
    "distilled": {
        "optimizer": SGD,
        "distill": {"temperature": 2.0, "label_weight": 0.1, "features": "block_00"},
    },
}
RATES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
MODELS = {"random": dict.fromkeys(RATES, 0.2), "lora": {"remat": True}}
MODELS["distilled"] = {"classifier": "distilled"}
DATA = random_batches(4, BATCH)
DATA["counted"] = (np.arange(64) < 53).astype("float32").reshape(4, BATCH)


def dataset(pipelines, pipeline):
    share = BATCH // pipelines
    places = slice(pipeline * share, (pipeline + 1) * share)
    return tf.data.Dataset.from_tensor_slices({key: each[:, places] for key, each in DATA.items()})


def make_engine(case, place, processes):
    def make_model(config):
        model = tiny_vit(**MODELS.get(case, {}))
        if case == "lora":
            adapt_low_rank(model, rank=2)
        freeze_for_good(model, config.freeze)
        return model

    options = {"total_steps": STEPS, "processes": processes, **CONFIGS[case]}
    if case == "distilled":
        options["distill"] = options["distill"] | {"teacher": teacher()}
    return small_engine.small_engine(make_model, **options, **small_engine.mesh_config(place))


@functools.cache
def teacher():
    """Returns the file of a model for images of another size than the student's."""
    file = pathlib.Path(tempfile.mkdtemp()) / "teacher.keras"
    make_vit(2, image_size=24).save(file)
    return str(file)


def weights_of(engine, case):
    """Returns all weights; of AdamW's without key biases, which cancel in the softmax.

    Their gradients are nothing but rounding, which Adam turns into steps.
    """
    with engine.averaged_weights() as model:
        kept = [w for w in model.weights if (case, w.path[-8:]) != ("adamw", "key/bias")]
        return np.concatenate([np.ravel(weight.numpy()) for weight in kept])


def run(case, place, processes):
    engine = make_engine(case, place, processes)
    batches = engine.make_batches(lambda *worker: dataset(*worker).repeat())
    losses = [engine.train(batches, 2).loss for _ in range(STEPS // 2)]
    batch_sums = Classification().batch_sums("softmax")
    split_sums = engine.make_split_sums(batch_sums, dataset, lambda images: images)
    with engine.averaged_weights():
        evaluation = Classification().means(split_sums())
    found = {"losses": losses, "weights": weights_of(engine, case), "rate": engine.learning_rate}
    found["evaluation"] = [evaluation[name] for name in ("loss", "top1", "top5")]
    found["count"] = evaluation["count"]
    return engine, {f"{case}/{name}": value for name, value in found.items()}


def join_once():
    """Gives all engines of this process the strategy of the first where they join a job."""
    from keras_vit.training.engine import tensorflow

    create, joined = tensorflow.create_strategy, []

    def once(config):
        if config.strategy != "multiworker":
            return create(config)
        joined[:] = joined or [create(config)]
        return joined[0]

    tensorflow.create_strategy = once


def main(output, *arguments):
    places, _, joined = " ".join(arguments).partition(" -- ")
    numbers = zip(("coordinator", "count", "index"), joined.split(), strict=False)
    processes = {key: value if key == "coordinator" else int(value) for key, value in numbers}
    results, first = {}, None
    if IN_TENSORFLOW:
        small_engine.give_tensorflow_two_devices()
        join_once()
    for place, case in itertools.product(places.split(), CONFIGS):
        # A process joins its job once.
        engine, found = run(case, place, {} if first else processes)
        if first and engine.watch:
            engine.watch.stop()  # That of the first watches until all are done.
        first = first or engine
        results |= {f"{place}/{key}": value for key, value in found.items()}
    first.gather("")
    first.close()
    np.savez(output, **results)
