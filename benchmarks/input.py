"""Reading, decoding and augmenting images, beside other pipelines."""

import functools
import gc
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness import interleaved
from benchmarks.harness.report import machine, show
from keras_vit.training.errors import UsageError
from keras_vit.training.io.quiet_start import import_tensorflow

WARM_UP_BATCHES = 3


def compare_pipelines(
    images: str, image_size: int = 224, batch_size: int = 50, batches: int = 10, rounds: int = 15
) -> None:
    """Images per second of reading, decoding and augmenting, against other pipelines.

    Our training and evaluation pipelines run beside references on the same JPEGs, in one process
    and in turns. The comparison is of CPU time, which a busy machine and its number of cores
    disturb least: pipelines like these are bound by decoding, and threads only spread it.
    """
    import_tensorflow()
    from benchmarks.libraries import image_pipelines

    found = pathlib.Path(images).rglob("*")
    files = sorted(path for path in found if path.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise UsageError(f"Expected JPEGs below {images}. Found none")
    start = machine()
    makers = image_pipelines.pipelines(image_size)
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        image_pipelines.prepare(files, folder)
        calls = {
            (kind, name): functools.partial(_turn, make(folder, batch_size), batches, batch_size)
            for kind, named in makers.items()
            for name, make in named.items()
        }
        turns = interleaved.measure(calls, rounds)
        changes = [
            _moved_by_reduced_decoding(kind, named, folder, len(files))
            for kind, named in makers.items()
        ]
    show(rates(turns))
    show(changes)
    print(
        f"{len(files)} images, batches of {batch_size}, {image_size} pixels, {rounds} rounds; "
        f"medians, ratios within a round. {start}"
    )


def _turn(dataset, batches, batch_size):
    """Returns the CPU time per image of so many batches, after some that are not measured."""
    # The previous pipeline may still be filling its buffers.
    gc.collect()
    busy = True
    while busy:
        before = time.process_time()
        time.sleep(0.1)
        busy = time.process_time() - before > 0.01
    iterator = iter(dataset)
    for _ in range(WARM_UP_BATCHES):
        next(iterator)
    start = time.process_time()
    for _ in range(batches):
        next(iterator)
    return (time.process_time() - start) / (batches * batch_size)


def rates(turns: Mapping[tuple[str, str], Sequence[float]]) -> list[dict[str, str]]:
    """Returns the rows of the seconds per image of every pipeline, by its part and name."""
    from benchmarks.libraries.image_pipelines import FLOOR, TUTORIAL

    rows = []
    for (kind, name), seconds in turns.items():
        floor, tutorial = (
            interleaved.ratio(turns[kind, other], seconds) for other in (FLOOR, TUTORIAL)
        )
        rows.append(
            {
                "pipeline": f"{kind}: {name}",
                "images per CPU s": f"{1 / statistics.median(seconds):.0f}",
                "of decoding": f"{floor.median:.2f}",
                "of the tutorial": f"{tutorial.median:.2f}",
                "quartiles": tutorial.quartiles(),
            }
        )
    return rows


def _moved_by_reduced_decoding(kind, makers, folder, images):
    """Returns how far reduced decoding moves the pixels of so many images of a pipeline."""
    from benchmarks.libraries.image_pipelines import OURS, REDUCED

    whole, reduced = (next(iter(makers[name](folder, images))) for name in (OURS, REDUCED))
    moved = abs(whole["image"] - reduced["image"]).numpy() * 127.5
    return {
        "reduced decoding": kind,
        "mean difference of 255": f"{moved.mean():.2f}",
        "root mean square": f"{(moved**2).mean() ** 0.5:.2f}",
    }
