"""`python -m benchmarks compare_libraries`: this package's ViT against other libraries' ViTs."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from statistics import median

from benchmarks.harness import interleaved, library_steps, machine, options
from benchmarks.harness.case import PRECISIONS, Case
from benchmarks.harness.library_steps import Result
from benchmarks.harness.process import ProcessError
from benchmarks.libraries import PACKAGES
from training.errors import UsageError
from training.reporting.table import Table

# The ways to run our model, by backend and mode.
OURS = {
    ("tensorflow", "infer"): ("keras_vit", "keras_vit.inference_function"),
    ("tensorflow", "train"): ("keras_vit",),
    ("jax", "infer"): ("keras_vit", "keras_vit.flash_attention"),
    ("jax", "train"): tuple(
        f"keras_vit{way}" for way in ("", ".flash_attention", ".remat", ".undonated")
    ),
}
COMPETITORS = ("keras_hub", "timm", "jax")
COMPILERS = {"timm": "inductor"}
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
    ways = ", ".join(dict.fromkeys(way for ways in OURS.values() for way in ways))
    parser.add_argument("--ours", help=f"of {ways}; by default those of the backend and mode")
    parser.add_argument(
        "--batch_size",
        type=int,
        nargs="+",
        default=[8],
        help="images per step; of several, each library is shown at its best",
    )
    parser.add_argument(
        "--alone",
        action="store_true",
        help="hold one model in memory at a time, for GPUs; what takes too much is left out",
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
    import keras

    from keras_vit.variants import arguments_of

    class_name, arguments = arguments_of(chosen.model)
    if class_name != "VisionTransformer" or set(arguments) != SIZES:
        raise UsageError(f"Expected a ViT that the other libraries have. Received: {chosen.model}")
    arguments = {**arguments, "image_size": chosen.image_size, "num_classes": 1000}
    competitors = _names(chosen.libraries, COMPETITORS, "libraries")
    products = [f"{module}.matrix_product" for module in ("keras_step", "timm")]
    products = products[: 2 if "timm" in competitors else 1]
    backend = keras.config.backend()
    ways = OURS[backend, chosen.mode]
    models = [*(_names(chosen.ours, ways, "ours") if chosen.ours else ways), *competitors]
    packages = {each for name in models for each in PACKAGES[name.partition(".")[0]]}
    missing = sorted(each for each in packages if importlib.util.find_spec(each) is None)
    if missing:
        raise UsageError(
            f"Expected {', '.join(missing)} to be installed. Install the other libraries with: "
            "pip install 'keras-vit-16x16[bench]', or choose others with --libraries"
        )
    compiled = {"both": (False, True), "on": (True,), "off": (False,)}[chosen.compile]

    def choices(name):
        # XLA never compiles oneDNN's kernels, and always what JAX runs.
        if name in [*products, "keras_vit.inference_function"]:
            return (False,)
        return (True,) if name == "jax" or (backend == "jax" and name != "timm") else compiled

    return [
        Case(name, arguments, chosen.mode, batch_size, precision, choice)
        for batch_size in chosen.batch_size
        for precision in _names(chosen.precision, PRECISIONS, "precision")
        for name in [*models, *(products if batch_size == chosen.batch_size[0] else [])]
        for choice in choices(name)
    ]


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
    best = peaks(results)
    ours = min((r for r in results if is_ours(r.case)), key=lambda r: median(r.per_image))
    for result in results:
        if "flops" in result.facts:
            continue
        case = result.case
        # Ours computes only the class token in its last block: fewer operations, counted as such.
        macs = ours.facts["executed_macs" if is_ours(case) else "macs"]
        flops = 2 * macs * case.batch_size * PASSES[case.mode]
        share = median(
            flops / seconds / peak for seconds, peak in zip(result.rounds, best, strict=True)
        )
        ratio = interleaved.ratio(result.per_image, ours.per_image)
        yield [
            case.library,
            case.precision,
            COMPILERS.get(case.library, "XLA") if case.compiled else "no",
            f"{1000 * median(result.per_image):.2f}",
            f"{ratio.median:.2f}",
            ratio.quartiles(),
            f"{100 * share:.0f} %",
            f"{result.memory / 2**20:.0f}",
            case.batch_size,
        ]


def report(results: Sequence[Result]) -> str:
    """Returns the table of all precisions and their peaks, in Markdown."""
    check_parameters(results)
    rows: list[list] = []
    lines = []
    for precision in dict.fromkeys(r.case.precision for r in results):
        group = [r for r in results if r.case.precision == precision]
        rows += _rows(group)
        peak = median(peaks(group)) / 1e9
        lines.append(f"Peak of a {precision} matrix product: {peak:.0f} GFLOP/s (median).")
    columns = ["library", "precision", "compiled", "ms per image", "× keras_vit", "quartiles"]
    columns += ["of peak", "peak MiB", "batch"]
    if len({row[-1] for row in rows}) == 1:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    table = Table(columns, rows)
    return "\n".join([table.markdown(), *lines])


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    chosen = parser().parse_args(argv)
    cases = cases_of(chosen)
    batches = " or ".join(map(str, chosen.batch_size))
    rounds = "rounds" if chosen.alone else "interleaved rounds"
    measure = library_steps.measure_alone if chosen.alone else library_steps.measure
    print(
        f"{chosen.model}, {chosen.mode}, batch {batches}, {chosen.image_size} px; "
        f"medians of {chosen.rounds} {rounds} of {chosen.seconds:g} s.\n"
        f"{machine.describe(chosen.threads)}\n",
        flush=True,
    )
    try:
        results = measure(cases, chosen.rounds, chosen.seconds, chosen.threads)
    except ProcessError as error:
        print(error, file=sys.stderr)
        return 1
    print(report(at_best_batch(results)))
    return 0
