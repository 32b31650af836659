"""The time that the training loop adds to its steps, against `model.fit`."""

import functools
import statistics
import time

from benchmarks.harness import interleaved
from benchmarks.harness.report import machine, show
from keras_vit.training.errors import UsageError
from keras_vit.training.io.quiet_start import import_tensorflow

_BATCH, _CLASSES, _SIZE = 8, 10, 8
STEPS_PER_CALL = (1, 20)


def loop_overhead(steps: int = 1000, rounds: int = 7) -> None:
    """The time that the training loop adds to its steps.

    Trains a model so small that a step is mostly overhead, on data in memory, with our loop and
    with `model.fit` of the same model and the same optimizer, in one process and in turns.

    Args:
        steps: per turn, a multiple of 20, the most updates between two returns to Python.
    """
    if steps < 1 or steps % max(STEPS_PER_CALL):
        raise UsageError(f"Expected --steps to be a multiple of 20. Received: {steps}")
    print(machine(), "\n", flush=True)
    rows = []
    for per_call in STEPS_PER_CALL:
        calls = {}
        for loop in (_our_loop, _model_fit):
            train = functools.partial(loop(per_call), steps)
            # The first call traces.
            train()
            calls[loop] = functools.partial(interleaved.seconds, train)
        # Measured for one number at a time, so that what is compared runs in direct succession.
        ours, fit = interleaved.measure(calls, rounds).values()
        ratio = interleaved.ratio(fit, ours)
        rows.append(
            {
                "steps per call": per_call,
                "ours, steps/s": f"{steps / statistics.median(ours):.0f}",
                "model.fit, steps/s": f"{steps / statistics.median(fit):.0f}",
                "ratio": f"{ratio.median:.2f}",
                "quartiles": ratio.quartiles(),
            }
        )
    show(rows)


def _small_run():
    """Returns a small model, its optimizer, and the same random batch again and again."""
    tf = import_tensorflow()
    import keras
    import numpy as np

    import keras_vit
    from keras_vit.training.recipes.optimizers import build_optimizer

    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=_SIZE,
        patch_size=4,
        hidden_size=8,
        mlp_dim=16,
        num_heads=2,
        num_layers=1,
        num_classes=_CLASSES,
    )
    optimizer = build_optimizer({"name": "sgd", "total_steps": 10**6, "clip_norm": 1.0})
    optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(_BATCH, _SIZE, _SIZE, 3)).astype("float32")
    labels = np.eye(_CLASSES, dtype="float32")[rng.integers(0, _CLASSES, _BATCH)]
    batch = tf.data.Dataset.from_tensors({"image": images, "label": labels})
    return model, optimizer, batch.repeat().prefetch(16)


def _our_loop(steps_per_call):
    """Returns a function that trains a number of steps with our loop."""
    tf = import_tensorflow()
    from keras_vit.training.engine.tensorflow import TensorFlowStep
    from keras_vit.training.loop.progress import Progress
    from keras_vit.training.recipes.losses import build_loss

    model, optimizer, data = _small_run()
    step = TensorFlowStep(
        tf.distribute.get_strategy(), model, optimizer, build_loss("softmax"), batch_size=_BATCH
    )
    batches = iter(data)

    def train(count):
        with Progress(count, 0, _BATCH, shown=False) as shown:
            for done in range(0, count, steps_per_call):
                start = time.monotonic()
                report = step(batches, steps_per_call)
                shown.advance(done + steps_per_call, time.monotonic() - start, report.loss)

    return train


def _model_fit(steps_per_call):
    """Returns a function that trains a number of steps with `model.fit`."""
    from keras_vit.training.recipes.losses import build_loss

    model, optimizer, data = _small_run()
    model.compile(optimizer, build_loss("softmax"), steps_per_execution=steps_per_call)
    data = data.map(lambda batch: (batch["image"], batch["label"]))
    return lambda count: model.fit(data, epochs=1, steps_per_epoch=count, verbose=0)
