"""`python -m benchmarks loop_overhead`: what the training loop adds to its steps.

A model so small that a step is mostly overhead, trained on data in memory by our loop and by
`model.fit` of the same model with the same optimizer, in one process and in turns.
"""

import functools
import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.harness import interleaved, machine, options
from training.reporting.table import Table

BATCH, CLASSES, SIZE = 8, 10, 8


def _model():
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


def _batches():
    """Returns the same random batch, for ever."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    images = rng.normal(size=(BATCH, SIZE, SIZE, 3)).astype("float32")
    labels = np.eye(CLASSES, dtype="float32")[rng.integers(0, CLASSES, BATCH)]
    return tf.data.Dataset.from_tensors({"image": images, "label": labels}).repeat().prefetch(16)


def our_loop(steps_per_call: int) -> Callable[[int], None]:
    """Returns a function that trains a number of steps with our loop."""
    import tensorflow as tf

    from training.engines.tensorflow.train_step import TrainSteps
    from training.loop.progress import Progress
    from training.recipes.losses import build_loss

    model, optimizer = _model()
    steps = TrainSteps(
        tf.distribute.get_strategy(), model, optimizer, build_loss("softmax"), batch_size=BATCH
    )
    batches = iter(_batches())

    def train(count):
        with Progress(count, 0, BATCH, shown=False) as shown:
            for step in range(0, count, steps_per_call):
                start = time.monotonic()
                report = steps(batches, steps_per_call)
                shown.advance(step + steps_per_call, time.monotonic() - start, report.loss)

    return train


def model_fit(steps_per_call: int) -> Callable[[int], None]:
    """Returns a function that trains a number of steps with `model.fit`."""
    from training.recipes.losses import build_loss

    model, optimizer = _model()
    model.compile(optimizer, build_loss("softmax"), steps_per_execution=steps_per_call)
    data = _batches().map(lambda batch: (batch["image"], batch["label"]))
    return lambda count: model.fit(data, epochs=1, steps_per_epoch=count, verbose=0)


def main(argv: Sequence[str]) -> int:
    """Prints steps per second of both loops, and their ratio; returns the exit code."""
    parser = options.parser("loop_overhead", __doc__, rounds=7)
    parser.add_argument("--steps", type=int, default=1000, help="per turn")
    parser.add_argument("--steps_per_call", type=int, nargs="+", default=[1, 20])
    chosen = parser.parse_args(argv)
    for per_call in chosen.steps_per_call:
        if per_call < 1 or chosen.steps % per_call:
            parser.error(f"--steps must be a multiple of --steps_per_call. Received: {per_call}")

    description = machine.describe()
    rows = []
    for per_call in chosen.steps_per_call:
        calls = {}
        for loop in (our_loop, model_fit):
            train = loop(per_call)
            # The first call traces.
            train(chosen.steps)
            calls[loop.__name__] = functools.partial(_seconds, train, chosen.steps)
        # Apart for each number, so that what is compared runs in direct succession.
        ours, fit = interleaved.measure(calls, chosen.rounds).values()
        rates = [f"{chosen.steps / statistics.median(each):.0f}" for each in (ours, fit)]
        ratio = interleaved.ratio(fit, ours)
        rows.append([per_call, *rates, f"{ratio.median:.2f}", ratio.quartiles()])
    columns = ["steps per call", "ours, steps/s", "model.fit, steps/s", "ratio", "quartiles"]
    print(f"{description}\n\n{Table(columns, rows).markdown()}")
    return 0


def _seconds(train, steps):
    start = time.perf_counter()
    train(steps)
    return time.perf_counter() - start
