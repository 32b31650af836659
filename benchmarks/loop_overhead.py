"""`python -m benchmarks loop_overhead`: what the training loop adds to its steps.

A model so small that a step is mostly overhead, trained on data in memory by our loop and by
`model.fit` of the same model with the same optimizer, in one process and in turns.
"""

import argparse
import statistics
import time

from benchmarks.harness import machine, progress, table

BATCH, CLASSES, SIZE = 8, 10, 8


def make_model():
    """Returns the model and its optimizer, freshly initialised."""
    import keras

    import keras_vit
    from training.recipes.optimizers import build_optimizer

    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=SIZE,
        patch_size=4,
        hidden_size=8,
        mlp_dim=16,
        num_heads=2,
        num_layers=1,
        num_classes=CLASSES,
    )
    optimizer = build_optimizer({"name": "sgd", "total_steps": 10**6, "clip_norm": 1.0})
    optimizer.build(model.trainable_variables)
    return model, optimizer


def make_data():
    """Returns the same random batch, for ever."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    images = rng.normal(size=(BATCH, SIZE, SIZE, 3)).astype("float32")
    labels = np.eye(CLASSES, dtype="float32")[rng.integers(0, CLASSES, BATCH)]
    return tf.data.Dataset.from_tensors({"image": images, "label": labels}).repeat().prefetch(16)


def ours(steps_per_call):
    """Returns a function that trains a number of steps with our loop."""
    import tensorflow as tf

    from training.engines.tensorflow.train_step import TrainSteps
    from training.loop.progress import Progress
    from training.recipes.losses import build_loss

    model, optimizer = make_model()
    steps = TrainSteps(
        tf.distribute.get_strategy(), model, optimizer, build_loss("softmax"), batch_size=BATCH
    )
    batches = iter(make_data())

    def train(count):
        with Progress(count, 0, BATCH, shown=False) as shown:
            for step in range(0, count, steps_per_call):
                start = time.monotonic()
                report = steps(batches, steps_per_call)
                shown.advance(step + steps_per_call, time.monotonic() - start, report.loss)

    return train


def fit(steps_per_execution):
    """Returns a function that trains a number of steps with `model.fit`."""
    from training.recipes.losses import build_loss

    model, optimizer = make_model()
    model.compile(optimizer, build_loss("softmax"), steps_per_execution=steps_per_execution)
    data = make_data().map(lambda batch: (batch["image"], batch["label"]))

    def train(count):
        model.fit(data, epochs=1, steps_per_epoch=count, verbose=0)

    return train


def main(argv):
    """Prints steps per second of both loops, and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks loop_overhead")
    parser.add_argument("--steps", type=int, default=1000, help="steps per round")
    parser.add_argument("--rounds", type=int, default=7, help="rounds; medians are printed")
    parser.add_argument("--steps-per-call", type=int, nargs="+", default=[1, 20])
    options = parser.parse_args(argv)
    for per_call in options.steps_per_call:
        if per_call < 1 or options.steps % per_call:
            parser.error(f"--steps must be a multiple of --steps-per-call. Received: {per_call}")

    description = machine.describe(2)
    contestants = {
        (name, per_call): make(per_call)
        for per_call in options.steps_per_call
        for name, make in (("ours", ours), ("fit", fit))
    }
    seconds = {key: [] for key in contestants}
    with progress.Bar((options.rounds + 1) * len(contestants)) as bar:
        for round_number in range(options.rounds + 1):
            for key, train in contestants.items():
                start = time.perf_counter()
                train(options.steps)
                # The first round traces.
                if round_number:
                    seconds[key].append(time.perf_counter() - start)
                bar.advance()
    rate = {key: options.steps / statistics.median(times) for key, times in seconds.items()}
    rows = [
        [
            str(per_call),
            f"{rate['ours', per_call]:.0f}",
            f"{rate['fit', per_call]:.0f}",
            f"{rate['ours', per_call] / rate['fit', per_call]:.2f}",
        ]
        for per_call in options.steps_per_call
    ]
    print(description)
    print()
    print(table.markdown(["steps per call", "ours, steps/s", "model.fit, steps/s", "ratio"], rows))
