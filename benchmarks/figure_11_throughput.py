"""Figure 11: images per second and largest batch against the image size.

For every model and image size: the images per second at the best batch size, and the largest power
of 2 that fits. Each is measured in a process of its own; on a CPU a batch "fits" if that process
stays below --memory.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras_vit
from benchmarks.harness.command_line import add_shared, show
from benchmarks.harness.process import Process, ProcessError
from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.errors import UsageError
from keras_vit.training.io.progress_bar import track
from keras_vit.variants import arguments_of

# The models and sizes of the paper's figure.
_VITS = ("ViT-B/32", "ViT-L/32", "ViT-B/16", "ViT-L/16", "ViT-H/14")
_MODELS = ("BiT-R50x1", "BiT-R50x2", *_VITS, "BiT-R152x4")
_SIZES = (64, 128, 224, 384, 512)


class Measurement(NamedTuple):
    """One model at one image size."""

    model: str
    image_size: int
    rate: float  # images per second at `best_batch`; both are 0 if not even one image fits
    best_batch: int
    largest_batch: int  # that was found to fit
    limited: bool  # whether a larger one was found not to fit, rather than not tried


def add_options(parser: CommandParser) -> None:
    parser.add_argument("--output", default="throughput.png", help="file of the figure")
    add_shared(parser, models=_MODELS, image_sizes=_SIZES)
    text = "time training steps instead of inference"
    parser.add_argument("--train", action="store_true", help=text)
    names = ("float32", "bfloat16", "mixed_bfloat16")
    text = "the models' dtype policy"
    parser.add_argument("--precision", choices=names, default="float32", help=text)
    parser.add_argument("--jit_compile", action="store_true", help="compile with XLA")
    text = "powers of 2 up to here are tried"
    parser.add_argument("--max_batch", type=int, default=1024, help=text)
    text = "GiB of main memory that a measurement may take; 0 is no limit. On a GPU its own memory "
    text += "is the limit"
    parser.add_argument("--memory", type=float, default=4.0, help=text)


def run(options: argparse.Namespace) -> None:
    cells, memory = list(itertools.product(options.models, options.image_sizes)), options.memory
    if min(options.max_batch, *options.image_sizes) < 1:
        raise UsageError("Expected --max_batch and --image_sizes to be at least 1")
    for model in options.models:
        arguments_of(model)
    devices, measurements = set(), []
    for model, size in track(cells, "measuring"):
        task = {"model": model, "image_size": size}
        task |= {name: getattr(options, name) for name in ("train", "precision", "jit_compile")}
        with Process(f"{__name__}:rates", task, memory=int(memory * 2**30)) as process:
            devices.add(process.facts["device"])
            measurements.append(Measurement(model, size, *search(process.ask, options.max_batch)))
    limit = f", {memory:g} GiB" if memory and "CPU" in devices else ""
    work = f"{'Training step' if options.train else 'Inference'} in {options.precision}"
    title = f"{work} on {', '.join(sorted(devices))}{limit}"
    rows = [
        {
            "model": each.model,
            "image size": each.image_size,
            "images/s": f"{each.rate:.4g}",
            "at batch": each.best_batch,
            "largest batch": each.largest_batch if each.limited else f"≥ {each.largest_batch}",
        }
        for each in measurements
    ]
    show(rows, title)
    # It imports TensorFlow, whose memory is the measured processes' until here.
    from keras_vit.training.reporting.matplotlib_figures import write_png

    write_png(draw(measurements, title), options.output)


def rates(
    model: str, image_size: int, train: bool, precision: str, jit_compile: bool
) -> tuple[dict[str, str], Callable]:
    """Builds a model; returns its device, and a function from a batch size to the rate."""
    import tensorflow as tf

    from keras_vit.training.evaluators.speed import images_per_second

    built = keras_vit.create_model(model, image_size=image_size, dtype=precision)

    def measure(batch_size):
        options = {"train": train, "repeats": 3, "jit_compile": jit_compile}
        return {"images_per_second": images_per_second(built, batch_size, **options)}

    return {"device": tf.config.list_logical_devices()[-1].device_type}, measure


def search(ask: Callable[..., dict], max_batch: int) -> tuple[float, int, int, bool]:
    """Returns the rest of a `Measurement`, from rate to `limited`.

    `ask` is `Process.ask` of `rates`; a batch that does not fit ends the process. Powers of 2 up to
    `max_batch` are tried.
    """
    found = [(0.0, 0)]
    batch, limited = 1, False
    while batch <= max_batch and not limited:
        try:
            found.append((ask(batch_size=batch)["images_per_second"], batch))
            batch *= 2
        except ProcessError as error:
            if not error.out_of_memory:
                raise
            limited = True
    return *max(found), found[-1][1], limited


def draw(measurements: Sequence[Measurement], title: str) -> Any:
    """Returns a matplotlib figure: rate and largest batch against the size, a line per model."""
    from keras_vit.training.reporting.matplotlib_figures import new_figure

    figure, (left, right) = new_figure(panels=2)
    for model, group in itertools.groupby(measurements, lambda each: each.model):
        points = [each for each in group if each.largest_batch]
        sizes = [each.image_size for each in points]
        (line,) = left.plot(sizes, [p.rate for p in points], "o-", label=model)
        right.plot(sizes, [p.largest_batch for p in points], "-", color=line.get_color())
        for point in points:
            marker = "o" if point.limited else "^"
            right.plot(point.image_size, point.largest_batch, marker, color=line.get_color())
    ticks = sorted({each.image_size for each in measurements})
    for axis, label in ((left, "images per second"), (right, "largest batch (▲ at least)")):
        axis.set(xscale="log", yscale="log", xlabel="image size (pixels)", ylabel=label)
        axis.set_xticks(ticks, ticks)
        axis.minorticks_off()
    left.legend(fontsize=7)
    figure.suptitle(title, fontsize=9)
    return figure
