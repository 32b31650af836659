"""Figure 11 and Table 6 of the paper: speed, memory and compute of its models."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import keras_vit
from benchmarks.harness.process import Process, ProcessError
from benchmarks.harness.report import show
from keras_vit.training import paper_tables
from keras_vit.training.errors import UsageError
from keras_vit.training.io import atomic
from keras_vit.training.io.progress_bar import track
from keras_vit.training.io.quiet_start import import_tensorflow
from keras_vit.variants import arguments_of

# The models and sizes of the paper's figure.
_VITS = ("ViT-B/32", "ViT-L/32", "ViT-B/16", "ViT-L/16", "ViT-H/14")
_MODELS = ("BiT-R50x1", "BiT-R50x2", *_VITS, "BiT-R152x4")
_SIZES = (64, 128, 224, 384, 512)


class Measurement(NamedTuple):
    """One model at one image size.

    Attributes:
        model, image_size: what was measured.
        rate: images per second at `best_batch`; both are 0 if not even one image fits.
        largest_batch: that was found to fit.
        limited: whether a larger one was found not to fit, rather than not tried.
    """

    model: str
    image_size: int
    rate: float
    best_batch: int
    largest_batch: int
    limited: bool


def figure_11_throughput(
    output: str = "throughput.png",
    models: Sequence[str] = _MODELS,
    image_sizes: Sequence[int] = _SIZES,
    train: bool = False,
    precision: Literal["float32", "bfloat16", "mixed_bfloat16"] = "float32",
    jit_compile: bool = False,
    max_batch: int = 1024,
    memory: float = 4.0,
) -> None:
    """Figure 11: images per second and largest batch against the image size.

    For every model and image size: the images per second at the best batch size, and the largest
    power of 2 that fits. Each is measured in a process of its own; on a CPU a batch "fits" if that
    process stays below --memory.

    Args:
        output: file of the figure.
        train: time training steps instead of inference.
        precision: the models' dtype policy.
        jit_compile: compile with XLA.
        max_batch: powers of 2 up to here are tried.
        memory: GiB of main memory that a measurement may take; 0 is no limit. On a GPU its own
            memory is the limit.
    """
    if min(max_batch, *image_sizes) < 1:
        raise UsageError("Expected --max_batch and --image_sizes to be at least 1")
    for model in models:
        arguments_of(model)
    devices, measurements = set(), []
    for model, size in track(list(itertools.product(models, image_sizes)), "measuring"):
        task = {"model": model, "image_size": size, "train": train}
        task |= {"precision": precision, "jit_compile": jit_compile}
        with Process(f"{__name__}:rates", task, memory=int(memory * 2**30)) as process:
            devices.add(process.facts["device"])
            measurements.append(Measurement(model, size, *search(process.ask, max_batch)))
    limit = f", {memory:g} GiB" if memory and "CPU" in devices else ""
    work = f"{'Training step' if train else 'Inference'} in {precision}"
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
    with atomic.atomic_file(output) as temporary:
        draw(measurements, title).savefig(temporary, format="png")


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
    """Returns what a `Measurement` holds beside what was measured.

    Args:
        ask: `Process.ask` of `rates`; a batch that does not fit ends the process.
        max_batch: powers of 2 up to here are tried.
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
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


def table_6_exaflops() -> None:
    """Table 6: the compute of the paper's training runs beside ours."""
    import_tensorflow()
    rows = []
    for (model, epochs), published in paper_tables.TABLE_6_EXAFLOPS.items():
        counted = keras_vit.costs(model, num_classes=None)
        exaflops = counted.exaflops(epochs * paper_tables.UPSTREAM_IMAGES["jft"])
        rows.append(
            {
                "model": model,
                "epochs": epochs,
                "parameters": f"{counted.parameters / 1e6:.1f}M",
                "GMACs": f"{counted.macs / 1e9:.2f}",
                "executed": f"{counted.executed_macs / 1e9:.2f}",
                "exaFLOPs": f"{exaflops:.1f}",
                "Table 6": published,
                "error": f"{exaflops / published - 1:.2%}",
                "misprint": paper_tables.TABLE_6_MISPRINTS.get((model, epochs), ""),
            }
        )
    show(rows)
