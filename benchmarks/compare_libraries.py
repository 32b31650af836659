"""Inference or a training step of this package's Vision Transformer, against other libraries.

Measures a Vision Transformer of this package and of others, each in a process of its own, one at a
time, in interleaved rounds. Prints Markdown.
"""

import argparse
import dataclasses
import functools
import importlib
import itertools
import os
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple, get_args

from benchmarks.harness import interleaved
from benchmarks.harness.command_line import add_shared, machine, show
from benchmarks.libraries import INSTALL, LIBRARIES, PRECISIONS, Case, Mode, missing
from keras_vit.training.command_line.options import CommandParser, list_of
from keras_vit.training.errors import UsageError
from keras_vit.variants import arguments_of

SIZES = {"patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers"}
WARM_UP_STEPS = 2


class Result(NamedTuple):
    """The measurements of one case."""

    case: Case
    parameters: int  # trained values
    per_image: list[float]  # median seconds of each round
    memory: int  # peak of its process, in bytes


def add_options(parser: CommandParser) -> None:
    add_shared(parser, model="ViT-B/16")
    text = "infer, or train: a training step"
    parser.add_argument("--mode", choices=get_args(Mode), default="infer", help=text)
    text = "keras_vit and others: keras_hub, timm, jax, the original's model in flax, "
    text += (
        "keras_vit.remat, on JAX keras_vit.plain_attention, and of --mode=train keras_vit.trainer "
    )
    text += "and keras_vit.taught, the trainer's student of a teacher that is as large"
    several, default = list_of(str, LIBRARIES), ["keras_vit", "keras_hub", "timm", "jax"]
    parser.add_argument("--libraries", type=several, default=default, help=text)
    several = list_of(str, PRECISIONS)
    parser.add_argument("--precision", type=several, default=PRECISIONS)
    text = "off, on: whether XLA (PyTorch: inductor) compiles; JAX always does"
    several = list_of(str, ("off", "on"))
    parser.add_argument("--compile", type=several, default=["off", "on"], help=text)
    add_shared(parser, batch_size=8, image_size=224, rounds=7, seconds=1.0, threads=2)


def run(options: argparse.Namespace) -> None:
    model, mode, batch_size = options.model, options.mode, options.batch_size
    image_size, libraries, threads = options.image_size, options.libraries, options.threads
    class_name, arguments = arguments_of(model)
    if class_name != "VisionTransformer" or set(arguments) != SIZES:
        raise UsageError(f"Expected a ViT that the other libraries have. Received: {model}")
    arguments = {**arguments, "image_size": image_size, "num_classes": 1000}
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if "keras_vit" not in libraries:
        raise UsageError("Expected --libraries to name keras_vit, which others are compared with")
    packages = [package for name in libraries for package in LIBRARIES[name][1]]
    if mode == "infer" and {"keras_vit.trainer", "keras_vit.taught"} & {*libraries}:
        raise UsageError("Expected --mode=train for keras_vit.trainer and keras_vit.taught")
    if absent := missing(packages):
        raise UsageError(
            f"Expected {', '.join(absent)} to be installed. {INSTALL}, or choose others with "
            "--libraries"
        )
    cases = []
    for each, name in itertools.product(options.precision, libraries):
        # XLA always compiles what JAX runs.
        by_jax = name == "jax" or (backend == "jax" and not name.startswith("timm"))
        cases += [
            Case(name, arguments, mode, batch_size, each, choice == "on")
            for choice in (["on"] if by_jax else options.compile)
        ]
    print(
        f"{model}, {mode}, batch {batch_size}, {image_size} px; medians of {options.rounds} "
        f"interleaved rounds of {options.seconds:g} s.\n"
        f"{machine(threads)}\n",
        flush=True,
    )
    show(rows_of(measure(cases, options.rounds, options.seconds, threads)))


def measure(cases: Sequence[Case], rounds: int, seconds: float, threads: int) -> list[Result]:
    """Measures the cases as `interleaved.measure_processes`."""
    tasks = dict(enumerate(map(dataclasses.asdict, cases)))
    found = interleaved.measure_processes(f"{__name__}:prepare", tasks, rounds, threads, seconds)
    results = []
    for case, (facts, answers) in zip(cases, found.values(), strict=True):
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


def rows_of(results: Sequence[Result]) -> list[dict[str, object]]:
    """Returns the rows of the table, in each precision against our fastest way.

    Raises ValueError if the models differ in their number of parameters.
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
            compiler = "inductor" if case.library.startswith("timm") else "XLA"
            row: dict[str, object] = {
                "library": case.library,
                "precision": precision,
                "compiled": compiler if case.compiled else "no",
                "ms per image": f"{1000 * median(per_image):.2f}",
                "× keras_vit": ratio,
                "quartiles": quartiles,
                "peak MiB": f"{memory / 2**20:.0f}",
            }
            rows.append(row)
    return rows
