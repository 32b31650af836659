"""Training and inference in bfloat16 on one GPU, against other libraries.

Needs KERAS_BACKEND=jax. Of timm on PyTorch and the original's model in flax, those that are
installed take part. The libraries of a row are compiled side by side on all cores, then measured in
turns. A file keeps the rows, so that a command that was cut off goes on. Prints Markdown.
"""

import argparse
import functools
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from benchmarks import compare_libraries
from benchmarks.harness import interleaved
from benchmarks.harness.command_line import add_shared, gpus, machine, show
from benchmarks.libraries import LIBRARIES, missing
from keras_vit.analysis.cost import PASSES_PER_STEP, costs
from keras_vit.training.command_line.options import CommandParser, list_of
from keras_vit.training.errors import UsageError
from keras_vit.training.io.atomic import write_text
from keras_vit.variants import arguments_of

SIDES = ("keras_vit", "timm", "timm.max_autotune", "jax")
# MODE:MODEL:PIXELS:IMAGES, and whether training recomputes the blocks' activations.
ROWS = ["train:ViT-B/16:224:128", "train:ViT-S/16:384:64", "train:ViT-L/16:224:32"]
ROWS += [f"infer:ViT-B/16:224:{images}" for images in (1, 8, 128)]
ROWS += ["train:ViT-B/16:224:256", "train:ViT-H/14:224:32:remat"]
# By library: facts and answers of its process, its `times` of a step, round by round, and `batch`.
Results = Mapping[str, Mapping[str, Any]]
_PRODUCTS = 8


def add_options(parser: CommandParser) -> None:
    text = "of the table: MODE:MODEL:PIXELS:IMAGES, of training also with :remat"
    parser.add_argument("--rows", type=list_of(str), default=ROWS, help=text)
    text = "keeps the rows; those that it has are not measured again"
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu.json"), help=text)
    text = "height of the matrices whose product shows the peak arithmetic"
    parser.add_argument("--matrix", type=int, default=8192, help=text)
    add_shared(parser, rounds=5, seconds=1.0)


def run(options: argparse.Namespace) -> None:
    cases, card = {row: case_of(row) for row in options.rows}, ", ".join(gpus()) or "no GPU"
    of = f"{card}, {options.rounds} rounds of {options.seconds:g} s"
    found: dict[str, Any] = {"of": of, "machine": machine(), "rows": {}}
    if options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
    if found["of"] != of:
        raise UsageError(f"Expected --output of {of}. Received: {options.output}, of {found['of']}")
    environment = {"KERAS_BACKEND": "jax", "TORCHINDUCTOR_COMPILE_THREADS": str(os.cpu_count())}
    measure = functools.partial(
        interleaved.measure_processes,
        rounds=options.rounds,
        threads=0,
        seconds=options.seconds,
        environment=environment,
    )
    if "peak" not in found:
        ((_, turns),) = measure(f"{__name__}:product", {"": {"size": options.matrix}}).values()
        found["peak"] = 2 * options.matrix**3 * _PRODUCTS / min(each["median"] for each in turns)
    sides = [name for name in SIDES if not missing(LIBRARIES[name][1])]
    todo = [row for row in cases if row not in found["rows"]]
    # Batches of inference take so little memory that all are prepared at once.
    for _, group in itertools.groupby(todo, lambda row: row[:5] == "infer" or row):
        tasks = {(row, side): {**cases[row], "library": side} for row in group for side in sides}
        for (row, side), (facts, turns) in measure(
            f"{__name__}:prepare", tasks, together=True
        ).items():
            own = {"batch": cases[row]["batch_size"], "times": [each["median"] for each in turns]}
            found["rows"].setdefault(row, {})[side] = facts | turns[-1] | own
        write_text(options.output, json.dumps(found))
    peak = f"A product of matrices: {found['peak'] / 1e12:.1f} TFLOP/s."
    print(f"{found['of']}. {peak}\n{found['machine']}\n")
    rows = at_best_batch({row: found["rows"].get(row, {}) for row in cases})
    show(rows_of(rows, found["peak"]))


def case_of(row: str) -> dict[str, Any]:
    """Returns the arguments of a `Case` but for the library; raises `UsageError`."""
    mode, _, rest = row.removesuffix(":remat").partition(":")
    name, *numbers = rest.split(":")
    if mode not in ("train", "infer") or [each.isdigit() for each in numbers] != [True, True]:
        raise UsageError(f"Expected --rows of MODE:MODEL:PIXELS:IMAGES. Received: {row}")
    sizes = {"image_size": int(numbers[0]), "num_classes": 1000, "remat": row.endswith(":remat")}
    case = {"arguments": {**arguments_of(name)[1], **sizes}, "batch_size": int(numbers[1])}
    return {**case, "mode": mode, "precision": "bfloat16", "compiled": True}


def prepare(**case: Any) -> tuple[dict[str, Any], Callable[[float], dict[str, float]]]:
    """Does as `compare_libraries.prepare`, and tells the time and the memory of the device."""
    start = time.monotonic()
    facts, measure = compare_libraries.prepare(**case)
    seconds = time.monotonic() - start

    def device_memory():
        if case["library"].startswith("timm"):
            import torch

            return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)

    own = {**facts, "seconds": seconds}
    return own, lambda length: {**measure(length), "device": device_memory()}


def product(size: int) -> tuple[dict[str, Any], Callable[[float], dict[str, float]]]:
    """Multiplies matrices in bfloat16, some times in each call."""
    import jax

    matrix = jax.random.normal(jax.random.key(0), (size, size), "bfloat16") / size**0.5
    step = jax.jit(lambda x: jax.lax.fori_loop(0, _PRODUCTS, lambda _, y: x @ y, x))
    return {}, functools.partial(
        interleaved.median_time, lambda: jax.block_until_ready(step(matrix))
    )


def at_best_batch(found: Mapping[str, Results]) -> dict[str, Results]:
    """Adds rows of each library at its fastest batch, for what was trained with several."""
    several: dict[str, list[Results]] = {}
    for name, results in found.items():
        mode, model, pixels, _, *remat = name.split(":")
        several.setdefault(":".join([mode, model, pixels, "best", *remat]), []).append(results)
    best = {
        name: {
            side: min((each.get(side, own) for each in group), key=_per_image)
            for side, own in group[0].items()
        }
        for name, group in several.items()
        if len(group) > 1 and name.startswith("train")
    }
    return {**found, **best}


def _per_image(result):
    return median(result["times"]) / result["batch"]


def rows_of(found: Mapping[str, Results], peak: float) -> list[dict[str, object]]:
    """Returns the rows of the table; speeds are compared with the fastest other library's.

    Raises ValueError if models of a row differ in their number of parameters.
    """
    rows: list[dict[str, object]] = []
    for name, results in found.items():
        mode, model, pixels, batch, *remat = name.split(":")
        flops = costs(model, image_size=int(pixels), num_classes=1000).flops
        flops *= PASSES_PER_STEP if mode == "train" else 1
        counts = {side: each["parameters"] for side, each in results.items()}
        if len({*counts.values()}) > 1:
            raise ValueError(f"Expected models of one size. Received parameters: {counts}")
        rivals = [each for side, each in results.items() if side != "keras_vit"]
        for side, result in results.items():
            speed = 1 / _per_image(result)
            row: dict[str, object] = {
                "": " ".join([mode, model, *remat]),
                "pixels": pixels,
                "batch": f"best, {result['batch']}" if batch == "best" else batch,
                "library": side,
                "images/s": f"{speed:.1f}",
                "ms": f"{1000 * median(result['times']):.2f}",
                "GiB": f"{(result['device'] or result['memory']) / 2**30:.2f}",
                "% of peak": f"{100 * flops * speed / peak:.0f}",
                "compiled in s": f"{result['seconds']:.0f}",
            }
            if rivals:
                best = min(rivals, key=_per_image)
                pair = ([t / each["batch"] for t in each["times"]] for each in (best, result))
                row["speed ÷ best rival"], row["quartiles"] = interleaved.ratio(*pair)
            rows.append(row)
    return rows
