"""`model.fit` on simulated devices: alone, data parallel and model parallel; prints the losses."""

import contextlib
import json

import keras

from tests.tiny_vit import tiny_vit
from tests.training.small_engine import random_batches

IMAGES, LABELS = (each[0] for each in random_batches(1, 64).values())


def fit():
    keras.utils.set_random_seed(0)
    model = tiny_vit()
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, jit_compile=True)
    history = model.fit(IMAGES, LABELS, batch_size=16, epochs=5, shuffle=False, verbose=0)
    return history.history["loss"]


def model_parallel():
    mesh = keras.distribution.DeviceMesh((4, 2), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*hidden_dense/kernel"] = (None, "model")
    layout[".*output_dense/kernel"] = ("model", None)
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


@contextlib.contextmanager
def distributed(distribution):
    keras.distribution.set_distribution(distribution)
    yield
    keras.distribution.set_distribution(None)


def main():
    losses = {"alone": fit()}
    for name, make in (("data", keras.distribution.DataParallel), ("model", model_parallel)):
        with distributed(make()):
            losses[name] = fit()
    print(json.dumps(losses))


if __name__ == "__main__":
    main()
