"""This package's Vision Transformer against those of other libraries."""

import dataclasses
import functools
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Literal, NamedTuple

from benchmarks.harness import interleaved
from benchmarks.harness.process import ProcessError
from benchmarks.harness.report import machine, show
from benchmarks.libraries import INSTALL, LIBRARIES, PRECISIONS, Case, Mode, Precision, missing
from keras_vit.training.errors import UsageError

Library = Literal[
    "keras_vit", "keras_vit.flash_attention", "keras_vit.remat", "keras_hub", "timm", "jax"
]
SIZES = {"patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers"}
WARM_UP_STEPS = 2


class Result(NamedTuple):
    """The measurements of one case.

    Attributes:
        case: its `Case`.
        parameters: the number of trained values.
        per_image: the median seconds per image of each round.
        memory: the peak memory of its process, in bytes.
    """

    case: Case
    parameters: int
    per_image: list[float]
    memory: int


def compare_libraries(
    model: str = "ViT-B/16",
    mode: Mode = "infer",
    image_size: int = 224,
    libraries: Sequence[Library] = ("keras_vit", "keras_hub", "timm", "jax"),
    batch_size: Sequence[int] = (8,),
    precision: Sequence[Precision] = PRECISIONS,
    compile: Sequence[Literal["off", "on"]] = ("off", "on"),
    alone: bool = False,
    rounds: int = 7,
    seconds: float = 1.0,
    threads: int = 2,
) -> None:
    """Inference or a training step, against other libraries.

    Measures a Vision Transformer of this package and of others, each in a process of its own, one
    at a time, in interleaved rounds. Prints Markdown.

    Args:
        libraries: keras_vit and others: keras_hub, timm, jax, the original's model in flax,
            keras_vit.remat, and on JAX keras_vit.flash_attention.
        batch_size: images per step; of several, each library is shown at its best.
        compile: off, on: whether XLA (PyTorch: inductor) compiles; JAX always does.
        alone: hold one model in memory at a time, for GPUs; what takes too much is left out.
    """
    from keras_vit.variants import arguments_of

    class_name, arguments = arguments_of(model)
    if class_name != "VisionTransformer" or set(arguments) != SIZES:
        raise UsageError(f"Expected a ViT that the other libraries have. Received: {model}")
    arguments = {**arguments, "image_size": image_size, "num_classes": 1000}
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if "keras_vit" not in libraries:
        raise UsageError("Expected --libraries to name keras_vit, which others are compared with")
    packages = [package for name in libraries for package in LIBRARIES[name][1]]
    if absent := missing(packages):
        raise UsageError(
            f"Expected {', '.join(absent)} to be installed. {INSTALL}, or choose others with "
            "--libraries"
        )
    cases = []
    for size, each, name in itertools.product(batch_size, precision, libraries):
        # XLA always compiles what JAX runs.
        by_jax = name == "jax" or (backend == "jax" and name != "timm")
        cases += [
            Case(name, arguments, mode, size, each, choice == "on")
            for choice in (["on"] if by_jax else compile)
        ]
    print(
        f"{model}, {mode}, batch {' or '.join(map(str, batch_size))}, {image_size} px; medians of "
        f"{rounds} {'rounds' if alone else 'interleaved rounds'} of {seconds:g} s.\n"
        f"{machine(threads)}\n",
        flush=True,
    )
    show(rows_of(at_best_batch(measure(cases, rounds, seconds, threads, alone))))


def measure(
    cases: Sequence[Case], rounds: int, seconds: float, threads: int, alone: bool = False
) -> list[Result]:
    """Measures the cases against each other, in interleaved rounds, one running at a time.

    Args:
        cases: what to measure; all their processes are held at once.
        rounds: turns of each.
        seconds: length of a turn.
        threads: processor cores of each.
        alone: end each process before the next one starts. A case that takes more memory than
            there is is named on standard error and left out.

    Raises:
        ProcessError: if a library's process ends.
    """
    results: list[Result] = []
    for group in [[case] for case in cases] if alone else [cases]:
        tasks = dict(enumerate(map(dataclasses.asdict, group)))
        try:
            found = interleaved.measure_processes(
                f"{__name__}:prepare", tasks, rounds, threads, seconds
            )
        except ProcessError as error:
            if not (alone and error.out_of_memory):
                raise
            print(f"{group[0]}: out of memory", file=sys.stderr)
            continue
        for case, (facts, answers) in zip(group, found.values(), strict=True):
            per_image = [each["median"] / case.batch_size for each in answers]
            results.append(Result(case, facts["parameters"], per_image, answers[-1]["memory"]))
    return results


def prepare(**case: Any) -> tuple[dict[str, int], Callable[[float], dict[str, float]]]:
    """Builds a library's step and warms it up, in the process that will be asked."""
    module, _, function = LIBRARIES[case["library"]][0].partition(":")
    library = importlib.import_module(f"benchmarks.libraries.{module}")
    step, parameters = getattr(library, function)(Case(**case))
    for _ in range(WARM_UP_STEPS):
        step()
    return {"parameters": parameters}, functools.partial(interleaved.median_time, step)


def at_best_batch(results: Sequence[Result]) -> list[Result]:
    """Returns the result of each library at the batch size of the least time per image."""
    best: dict[tuple, Result] = {}
    for result in sorted(results, key=lambda r: median(r.per_image)):
        case = result.case
        best.setdefault((case.library, case.precision, case.compiled), result)
    return [result for result in results if result in best.values()]


def rows_of(results: Sequence[Result]) -> list[dict[str, object]]:
    """Returns the rows of the table, in each precision against our fastest way.

    Raises:
        ValueError: if the models differ in their number of parameters.
    """
    counts = {result.case.library: result.parameters for result in results}
    if len(set(counts.values())) > 1:
        raise ValueError(f"Expected models of one size. Received parameters: {counts}")
    rows: list[dict[str, object]] = []
    for precision in dict.fromkeys(result.case.precision for result in results):
        group = [each for each in results if each.case.precision == precision]
        ours = [each for each in group if each.case.library.startswith("keras_vit")]
        fastest = min(ours, key=lambda each: median(each.per_image))
        for case, _, per_image, memory in group:
            ratio, quartiles = interleaved.ratio(per_image, fastest.per_image)
            compiler = "inductor" if case.library == "timm" else "XLA"
            row = {
                "library": case.library,
                "precision": precision,
                "compiled": compiler if case.compiled else "no",
                "batch": case.batch_size,
                "ms per image": f"{1000 * median(per_image):.2f}",
                "× keras_vit": ratio,
                "quartiles": quartiles,
                "peak MiB": f"{memory / 2**20:.0f}",
            }
            rows.append(row)
    if len({row["batch"] for row in rows}) == 1:
        for row in rows:
            del row["batch"]
    return rows
