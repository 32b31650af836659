"""This package's Vision Transformer against those of other libraries."""

import itertools
import os
from collections.abc import Sequence
from statistics import median
from typing import Literal

from benchmarks.harness import interleaved, library_steps
from benchmarks.harness.library_steps import Result
from benchmarks.harness.report import machine, table
from benchmarks.libraries import (
    INSTALL,
    PACKAGES,
    PRECISIONS,
    Case,
    Mode,
    Precision,
    missing,
)
from keras_vit.training.errors import UsageError

# The ways to run our model, by backend and mode.
OURS = {
    ("tensorflow", "infer"): ("keras_vit", "keras_vit.inference_function"),
    ("tensorflow", "train"): ("keras_vit",),
    ("jax", "infer"): ("keras_vit", "keras_vit.flash_attention"),
    ("jax", "train"): tuple(
        f"keras_vit{way}" for way in ("", ".flash_attention", ".remat", ".undonated")
    ),
}
Competitor = Literal["keras_hub", "timm", "jax", "none"]
# An update runs the model forward and, at twice that cost, backward.
PASSES = {"infer": 1, "train": 3}
SIZES = {"patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers"}


def compare_libraries(
    model: str = "ViT-B/16",
    mode: Mode = "infer",
    image_size: int = 224,
    libraries: Sequence[Competitor] = ("keras_hub", "timm", "jax"),
    ours: Sequence[str] = (),
    batch_size: Sequence[int] = (8,),
    precision: Sequence[Precision] = PRECISIONS,
    compile: Literal["both", "on", "off"] = "both",
    alone: bool = False,
    rounds: int = 7,
    seconds: float = 1.0,
    threads: int = 2,
) -> None:
    """Inference or a training step, against other libraries.

    Measures a Vision Transformer of this package and of others, each in a process of its own, one
    at a time, in interleaved rounds. Prints Markdown.

    Args:
        libraries: to compare with, of keras_hub, timm and jax; or none.
        ours: of keras_vit, keras_vit.inference_function, keras_vit.flash_attention,
            keras_vit.remat and keras_vit.undonated; by default those of the backend and mode.
        batch_size: images per step; of several, each library is shown at its best.
        compile: on, off or both: whether XLA (PyTorch: inductor) compiles; JAX always does.
        alone: hold one model in memory at a time, for GPUs; what takes too much is left out.
    """
    from keras_vit.variants import arguments_of

    class_name, arguments = arguments_of(model)
    if class_name != "VisionTransformer" or set(arguments) != SIZES:
        raise UsageError(f"Expected a ViT that the other libraries have. Received: {model}")
    arguments = {**arguments, "image_size": image_size, "num_classes": 1000}
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    competitors = [name for name in libraries if name != "none"]
    ways = OURS[backend, mode]
    if unknown := sorted({*ours} - {*ways}):
        expected = f"Expected --ours to name some of {', '.join(ways)}"
        raise UsageError(f"{expected}. Received: {', '.join(unknown)}")
    models = [*(ours or ways), *competitors]
    packages = [package for name in models for package in PACKAGES[name.partition(".")[0]]]
    if absent := missing(packages):
        raise UsageError(
            f"Expected {', '.join(absent)} to be installed. {INSTALL}, or choose others with "
            "--libraries"
        )
    products = [f"{module}.matrix_product" for module in ("keras_step", "timm")]
    products = products[: 2 if "timm" in competitors else 1]
    compiled = {"both": (False, True), "on": (True,), "off": (False,)}[compile]

    def choices(name):
        # XLA compiles no TFLite file, and always what JAX runs.
        if name in [*products, "keras_vit.inference_function"]:
            return (False,)
        return (True,) if name == "jax" or (backend == "jax" and name != "timm") else compiled

    cases = [
        Case(name, arguments, mode, size, each, choice)
        for size, each in itertools.product(batch_size, precision)
        for name in [*models, *(products if size == batch_size[0] else [])]
        for choice in choices(name)
    ]
    print(
        f"{model}, {mode}, batch {' or '.join(map(str, batch_size))}, {image_size} px; medians of "
        f"{rounds} {'rounds' if alone else 'interleaved rounds'} of {seconds:g} s.\n"
        f"{machine(threads)}\n",
        flush=True,
    )
    print(report(at_best_batch(library_steps.measure(cases, rounds, seconds, threads, alone))))


def is_ours(case: Case) -> bool:
    """Whether a case runs this package's model."""
    return case.library.partition(".")[0] == "keras_vit"


def at_best_batch(results: Sequence[Result]) -> list[Result]:
    """Returns the result of each library at the batch size of the least time per image."""
    best: dict[tuple, Result] = {}
    for result in sorted(results, key=lambda r: median(r.per_image)):
        case = result.case
        best.setdefault((case.library, case.precision, case.compiled), result)
    return [result for result in results if result in best.values()]


def report(results: Sequence[Result]) -> str:
    """Returns the table of all precisions and their peaks, in Markdown.

    Raises:
        ValueError: if the models differ in their number of parameters.
    """
    counts = {r.case.library: r.facts["parameters"] for r in results if "parameters" in r.facts}
    if len(set(counts.values())) > 1:
        raise ValueError(f"Expected models of one size. Received parameters: {counts}")
    rows: list[dict] = []
    lines = []
    for precision in dict.fromkeys(r.case.precision for r in results):
        group = [r for r in results if r.case.precision == precision]
        products = [
            [r.facts["flops"] / seconds for seconds in r.rounds]
            for r in group
            if "flops" in r.facts
        ]
        # The operations per second of the best matrix product, round by round.
        peaks = list(map(max, zip(*products, strict=True)))
        rows += _rows([r for r in group if "flops" not in r.facts], peaks)
        peak = median(peaks) / 1e9
        lines.append(f"Peak of a {precision} matrix product: {peak:.0f} GFLOP/s (median).")
    if len({row["batch"] for row in rows}) == 1:
        for row in rows:
            del row["batch"]
    return "\n".join([table(rows).markdown(), *lines])


def _rows(results, peaks):
    """Returns the rows of one precision."""
    ours = min((r for r in results if is_ours(r.case)), key=lambda r: median(r.per_image))
    for result in results:
        case = result.case
        # Ours computes only the class token in its last block: fewer operations, counted as such.
        macs = ours.facts["executed_macs" if is_ours(case) else "macs"]
        flops = 2 * macs * case.batch_size * PASSES[case.mode]
        share = median(
            flops / seconds / peak for seconds, peak in zip(result.rounds, peaks, strict=True)
        )
        ratio = interleaved.ratio(result.per_image, ours.per_image)
        compiler = "inductor" if case.library == "timm" else "XLA"
        yield {
            "library": case.library,
            "precision": case.precision,
            "compiled": compiler if case.compiled else "no",
            "ms per image": f"{1000 * median(result.per_image):.2f}",
            "× keras_vit": f"{ratio.median:.2f}",
            "quartiles": ratio.quartiles(),
            "of peak": f"{100 * share:.0f} %",
            "peak MiB": f"{result.memory / 2**20:.0f}",
            "batch": case.batch_size,
        }
