"""`python -m benchmarks compare_libraries`: this package's ViT against other libraries' ViTs."""

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Sequence

from benchmarks.harness import interleaved, library_steps, machine, options
from benchmarks.harness.case import PRECISIONS, Case
from benchmarks.harness.library_steps import Result
from benchmarks.harness.process import ProcessError
from benchmarks.libraries import PACKAGES
from training.errors import UsageError
from training.reporting.table import Table

OURS = ("keras_vit", "keras_vit.inference_function")
COMPETITORS = ("keras_hub", "timm", "jax")
# These come in one form only: XLA compiles what JAX runs, and never oneDNN's kernels.
COMPILED = {"jax": (True,), "keras_vit.inference_function": (False,)}
COMPILERS = {"keras_vit": "XLA", "keras_hub": "XLA", "timm": "inductor", "jax": "XLA"}
# An update runs the model forward and, at twice that cost, backward.
PASSES = {"infer": 1, "train": 3}
SIZES = {"patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers"}


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    parser = options.parser(
        "compare_libraries",
        "Measures a Vision Transformer of this package and of others, each in a process of its\n"
        "own, one at a time, in interleaved rounds. Prints Markdown.",
        model="ViT-B/16",
        mode="infer",
        batch_size=8,
        image_size=224,
        rounds=7,
        seconds=1.0,
        threads=2,
    )
    parser.add_argument(
        "--libraries",
        default=",".join(COMPETITORS),
        help="to compare with, separated by commas, or none",
    )
    parser.add_argument("--precision", default=",".join(PRECISIONS), help="separated by commas")
    parser.add_argument(
        "--compile",
        default="both",
        choices=("both", "on", "off"),
        help="whether XLA (PyTorch: inductor) compiles the step; JAX always does",
    )
    return parser


def _names(text, known, option):
    names = [name for name in text.split(",") if name and name != "none"]
    unknown = set(names) - set(known)
    if unknown:
        raise UsageError(
            f"Expected --{option} to name some of {', '.join(known)}. "
            f"Received: {', '.join(sorted(unknown))}"
        )
    return names


def cases_of(chosen: argparse.Namespace) -> list[Case]:
    """Returns the cases of all libraries, the matrix products last in each precision."""
    from keras_vit.variants import arguments_of

    class_name, arguments = arguments_of(chosen.model)
    if class_name != "VisionTransformer" or set(arguments) != SIZES:
        raise UsageError(f"Expected a ViT that the other libraries have. Received: {chosen.model}")
    arguments = {**arguments, "image_size": chosen.image_size, "num_classes": 1000}
    competitors = _names(chosen.libraries, COMPETITORS, "libraries")
    products = [f"{module}.matrix_product" for module in ("keras_step", "timm")]
    products = products[: 2 if "timm" in competitors else 1]
    models = [*OURS[: 2 if chosen.mode == "infer" else 1], *competitors]
    packages = {each for name in models for each in PACKAGES[name.partition(".")[0]]}
    missing = sorted(each for each in packages if importlib.util.find_spec(each) is None)
    if missing:
        raise UsageError(
            f"Expected {', '.join(missing)} to be installed. Install the other libraries with: "
            "pip install 'keras-vit-16x16[bench]', or choose others with --libraries"
        )
    compiled = {"both": (False, True), "on": (True,), "off": (False,)}[chosen.compile]
    return [
        Case(name, arguments, chosen.mode, chosen.batch_size, precision, choice)
        for precision in _names(chosen.precision, PRECISIONS, "precision")
        for name in [*models, *products]
        for choice in ((False,) if name in products else COMPILED.get(name, compiled))
    ]


def peaks(results: Sequence[Result]) -> list[float]:
    """Returns the operations per second of the best matrix product, round by round."""
    products = [
        [r.facts["flops"] / seconds for seconds in r.rounds] for r in results if "flops" in r.facts
    ]
    return [max(column) for column in zip(*products, strict=True)]


def check_parameters(results: Sequence[Result]) -> None:
    """Raises ValueError unless all models have the same number of parameters."""
    counts = {r.case.library: r.facts["parameters"] for r in results if "parameters" in r.facts}
    if len(set(counts.values())) > 1:
        raise ValueError(f"Expected models of one size. Received parameters: {counts}")


def _rows(results):
    """Returns the rows of one precision."""
    ours = min((r for r in results if r.case.library in OURS), key=lambda r: r.seconds)
    best = peaks(results)
    for result in results:
        if "flops" in result.facts:
            continue
        case = result.case
        # Ours computes only the class token in its last block: fewer operations, counted as such.
        macs = ours.facts["executed_macs" if case.library in OURS else "macs"]
        flops = 2 * macs * case.batch_size * PASSES[case.mode]
        share = statistics.median(
            flops / seconds / peak for seconds, peak in zip(result.rounds, best, strict=True)
        )
        ratio = interleaved.ratio(result.rounds, ours.rounds)
        yield [
            case.library,
            case.precision,
            COMPILERS[case.library] if case.compiled else "no",
            f"{1000 * result.seconds / case.batch_size:.2f}",
            f"{ratio.median:.2f}",
            f"{ratio.lower:.2f} to {ratio.upper:.2f}",
            f"{100 * share:.0f} %",
            f"{result.memory / 2**20:.0f}",
        ]


def report(results: Sequence[Result]) -> str:
    """Returns the table of all precisions and their peaks, in Markdown."""
    check_parameters(results)
    rows: list[list[str]] = []
    lines = []
    for precision in dict.fromkeys(r.case.precision for r in results):
        group = [r for r in results if r.case.precision == precision]
        rows += _rows(group)
        peak = statistics.median(peaks(group)) / 1e9
        lines.append(f"Peak of a {precision} matrix product: {peak:.0f} GFLOP/s (median).")
    columns = ["library", "precision", "compiled", "ms per image", "× keras_vit", "quartiles"]
    table = Table([*columns, "of peak", "peak MiB"], rows)
    return "\n".join([table.markdown(), *lines])


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    chosen = parser().parse_args(argv)
    cases = cases_of(chosen)
    print(
        f"{chosen.model}, {chosen.mode}, batch {chosen.batch_size}, {chosen.image_size} px; "
        f"medians of {chosen.rounds} interleaved rounds of {chosen.seconds:g} s.\n"
        f"{machine.describe(chosen.threads)}\n",
        flush=True,
    )
    try:
        results = library_steps.measure(cases, chosen.rounds, chosen.seconds, chosen.threads)
    except ProcessError as error:
        print(error, file=sys.stderr)
        return 1
    print(report(results))
    return 0
