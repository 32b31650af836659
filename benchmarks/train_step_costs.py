"""Measures a step against the image size, depth and batch, and what the training loop adds."""

import functools
import itertools
import math
import statistics
import time
from collections.abc import Sequence
from typing import Literal

from benchmarks.harness import interleaved, library_steps
from benchmarks.harness.report import machine, show
from benchmarks.libraries import Case
from keras_vit.training.errors import UsageError
from keras_vit.training.io.quiet_start import import_tensorflow
from keras_vit.variants import arguments_of

THREADS = 2


def growth(
    model: str = "ViT-Ti/16",
    image_sizes: Sequence[int] = (64, 128, 224, 320, 384, 512),
    depths: Sequence[int] = (3, 6, 12, 24),
    rounds: int = 7,
    seconds: float = 0.5,
) -> None:
    """Time and memory of inference against image size and depth.

    Each is measured in a process of its own, in interleaved rounds. Prints Markdown.

    Args:
        depths: numbers of layers.
    """
    arguments = {**arguments_of(model)[1], "image_size": 224, "num_classes": 1000}
    changes = [{"image_size": size} for size in image_sizes]
    changes += [{"num_layers": depth} for depth in depths]
    cases = [Case("keras_vit", {**arguments, **change}) for change in changes]
    print(f"{model}, infer, {cases[0]}; medians of {rounds} interleaved rounds.")
    print(machine(THREADS), "\n", flush=True)
    results = library_steps.measure(cases, rounds, seconds, THREADS)
    sizes, layers = results[: len(image_sizes)], results[len(image_sizes) :]
    show(_growth_row("image size", result.case.arguments["image_size"], result) for result in sizes)
    show(_growth_row("layers", result.case.arguments["num_layers"], result) for result in layers)


def _growth_row(name, value, result):
    arguments = result.case.arguments
    tokens = (arguments["image_size"] // arguments["patch_size"]) ** 2 + 1
    width, hidden = arguments["hidden_size"], arguments["mlp_dim"]
    # The multiplications of the encoder whose number is quadratic in the tokens, and the others.
    quadratic, linear = 2 * tokens**2 * width, tokens * (4 * width**2 + 2 * width * hidden)
    flops = 2 * result.facts["executed_macs"] * result.case.batch_size
    rate = statistics.median(flops / seconds for seconds in result.rounds)
    return {
        name: value,
        "tokens": tokens,
        "ms per image": f"{1000 * statistics.median(result.per_image):.2f}",
        "forward GFLOP/s": f"{rate / 1e9:.0f}",
        "quadratic part": f"{100 * quadratic / (quadratic + linear):.0f} %",
        "peak MiB": f"{result.memory / 2**20:.0f}",
    }


def memory(
    model: str = "ViT-B/16",
    image_size: int = 224,
    batches: Sequence[int] = (1, 4, 8, 16, 32),
    precision: Literal["float32", "bfloat16"] = "float32",
) -> None:
    """Peak memory of a training step against the batch, with and without remat.

    Each is the peak of a process of its own. Prints Markdown.

    Args:
        batches: images per step.
        precision: what the step computes in.
    """
    arguments = {**arguments_of(model)[1], "image_size": image_size, "num_classes": 1000}
    print(f"{model}, {image_size} px, {precision}, training step.")
    print(machine(THREADS), "\n", flush=True)
    ways = ("keras_vit", "keras_vit.remat")
    cases = [
        Case(way, arguments, "train", batch, precision)
        for batch, way in itertools.product(batches, ways)
    ]
    results = library_steps.measure(cases, rounds=1, seconds=0, threads=THREADS, alone=True)
    peaks = {(each.case.batch_size, each.case.library): each.memory / 2**20 for each in results}
    rows = []
    for batch in batches:
        whole, remat = (peaks.get((batch, way), math.nan) for way in ways)
        rows.append(
            {
                "batch": batch,
                "peak MiB": f"{whole:.0f}",
                "with remat": f"{remat:.0f}",
                "ratio": f"{remat / whole:.2f}",
            }
        )
    show(rows)


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
