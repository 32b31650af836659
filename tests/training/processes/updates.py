"""Updates of a small model on simulated devices; prints a line of JSON.

`norms`: {"MESH / MICRO-BATCHES": norm of the gradient} of a model full of masks.
`fit`: losses of `model.fit` alone, data parallel and model parallel.
`goes_on FOLDER DATAxFSDP` restores a state, updates it once and saves it: `step` and the `numbers`
that were found, and digests of all arrays as they were `restored` and are `saved`.
"""

import hashlib
import json

import keras
import numpy as np
import tensorflow as tf

from tests.tiny_vit import tiny_vit
from tests.training.small_engine import mesh_config, random_batches, small_engine

RATES = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
# (mesh, micro-batches); the others are compared with the first.
DIVISIONS = [("one", 1), ("one", 2), ("one", 4), ("8x1", 1), ("2x4", 2), ("1x8", 2)]


def train(engine, count, size):
    dataset = tf.data.Dataset.from_tensor_slices(random_batches(1, size)).repeat()
    return engine.train(engine.make_batches(lambda *_: dataset), count)


def norms():
    found = {}
    arguments = {"num_layers": 1, "remat": True, **dict.fromkeys(RATES, 0.3)}
    optimizer = {"name": "sgd", "base_lr": 0.05, "warmup_steps": 1, "total_steps": 3}
    for mesh, parts in DIVISIONS:
        changes = mesh_config(mesh) | {"accumulation_steps": parts, "optimizer": optimizer}
        engine = small_engine(lambda _: tiny_vit(**arguments), **changes)
        found[f"{mesh} / {parts}"] = train(engine, 2, 16).gradient_norm
    return found


def model_parallel():
    mesh = keras.distribution.DeviceMesh((4, 2), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*hidden_dense/kernel"] = (None, "model")
    layout[".*output_dense/kernel"] = ("model", None)
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def fit():
    found, (images, labels) = {}, (each[0] for each in random_batches(1, 64).values())
    places = {"data": keras.distribution.DataParallel, "model": model_parallel}
    for name, make in ({"alone": lambda: None} | places).items():
        keras.distribution.set_distribution(make())
        keras.utils.set_random_seed(0)
        model = tiny_vit()
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, jit_compile=True)
        history = model.fit(images, labels, batch_size=16, epochs=5, shuffle=False, verbose=0)
        found[name] = history.history["loss"]
    return found


def digests(engine):
    found = {}
    for name, shards in zip(engine._variables(), engine._take(), strict=True):
        array = np.zeros(shards.shape, shards.dtype)
        for start, values in shards.pieces:
            array[tuple(map(slice, start, np.add(start, values.shape)))] = values
        # Backends count updates in integers of their own.
        array = array.astype("int64") if array.dtype.kind in "iu" else array
        found[name] = hashlib.sha256(array.tobytes()).hexdigest()
    return found


def goes_on(folder, mesh):
    changes = {"batch_size": 8, "ema_decay": 0.9, "optimizer": {"first_moment_dtype": "bfloat16"}}
    changes |= mesh_config("one" if mesh == "1x1" else mesh)
    engine = small_engine(lambda _: tiny_vit(num_layers=1), **changes)
    numbers = engine.restore(folder) or {}
    found = {"step": engine.step, "restored": digests(engine)}
    found["numbers"] = {name: value.tolist() for name, value in numbers.items()}
    train(engine, 1, 8)
    engine.save({"third": np.array(engine.step / 3)}, wait=False)
    found["saved"] = digests(engine)
    engine.close()
    return found


def main(name, *arguments):
    print(json.dumps({"norms": norms, "fit": fit, "goes_on": goes_on}[name](*arguments)))
