"""`python -m benchmarks model`: this package's ViT against other libraries' ViTs."""

import argparse
import importlib.util
import statistics
import sys

from benchmarks.harness import interleaved, machine
from benchmarks.harness.case import MODES, PRECISIONS, Case
from benchmarks.harness.library_process import ContestantError
from benchmarks.harness.progress import Bar
from benchmarks.harness.table import markdown
from benchmarks.libraries import PACKAGES

OURS = ("keras_vit", "keras_vit_inference")
# These come in one form only: XLA compiles what JAX runs, and never oneDNN's kernels.
COMPILED = {"jax": (True,), "keras_vit_inference": (False,)}
# An update runs the model forward and, at twice that cost, backward.
PASSES = {"infer": 1, "train": 3}
COMPILERS = {"keras_vit": "XLA", "keras_hub": "XLA", "timm": "inductor", "jax": "XLA"}


def parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks model",
        description="Measures a Vision Transformer of this package and of others, each in a "
        "process of its own, one at a time, in interleaved rounds. Prints Markdown.",
    )
    parser.add_argument("--model", default="ViT-B/16", help="a name, for example ViT-Ti/16")
    parser.add_argument("--mode", default="infer", choices=MODES)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--peers", default="keras_hub,timm,jax", help="comma-separated, or none")
    parser.add_argument("--precision", default=",".join(PRECISIONS), help="comma-separated")
    parser.add_argument(
        "--compile",
        default="both",
        choices=("both", "on", "off"),
        help="whether XLA (PyTorch: inductor) compiles the step; JAX always does",
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="per contestant and round")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def _names(text, known, option):
    names = [name for name in text.split(",") if name and name != "none"]
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(
            f"Expected --{option} to name some of {', '.join(known)}. "
            f"Received: {', '.join(sorted(unknown))}"
        )
    return names


def _require(contestants):
    missing = {
        package
        for name in contestants
        for package in PACKAGES[name]
        if importlib.util.find_spec(package) is None
    }
    if missing:
        raise SystemExit(
            f"Expected {', '.join(sorted(missing))} to be installed. "
            "Install the peers with: pip install 'keras-vit[bench]', or choose others with --peers"
        )


def cases_of(options):
    """Returns the contestants' cases, the matrix products last in each precision."""
    from keras_vit.variants import arguments_of

    class_name, arguments = arguments_of(options.model)
    if class_name != "VisionTransformer" or set(arguments) - {
        "patch_size",
        "hidden_size",
        "mlp_dim",
        "num_heads",
        "num_layers",
    }:
        raise SystemExit(f"Expected a ViT that the peers have too. Received: {options.model}")
    arguments = {**arguments, "image_size": options.image_size, "num_classes": 1000}
    peers = _names(options.peers, ("keras_hub", "timm", "jax"), "peers")
    precisions = _names(options.precision, PRECISIONS, "precision")
    gemms = ["gemm_tensorflow", *(["gemm_torch"] if "timm" in peers else [])]
    ours = OURS if options.mode == "infer" else OURS[:1]
    _require([*ours, *peers, *gemms])
    compiled = {"both": (False, True), "on": (True,), "off": (False,)}[options.compile]
    cases = []
    for precision in precisions:
        for name in [*ours, *peers, *gemms]:
            choices = (False,) if name in gemms else COMPILED.get(name, compiled)
            cases += [
                Case(
                    name,
                    arguments,
                    options.mode,
                    options.batch,
                    precision,
                    choice,
                    options.threads,
                )
                for choice in choices
            ]
    return cases


def fastest(results, contestants, precision):
    """Returns the result of the contestants' fastest way, or None where they took no part."""
    theirs = [
        r for r in results if r.case.contestant in contestants and r.case.precision == precision
    ]
    return min(theirs, key=lambda r: r.seconds, default=None)


def peaks(results, precision):
    """Returns the operations per second of the best matrix product, round by round."""
    products = [
        [r.facts["flops"] / seconds for seconds in r.rounds]
        for r in results
        if "flops" in r.facts and r.case.precision == precision
    ]
    return [max(column) for column in zip(*products, strict=True)]


def check_parameters(results):
    """Raises ValueError unless all models have the same number of parameters."""
    counts = {r.case.contestant: r.facts["parameters"] for r in results if "parameters" in r.facts}
    if len(set(counts.values())) > 1:
        raise ValueError(f"Expected models of one size. Received parameters: {counts}")


def _operations(result, ours):
    # Ours computes only the class token in its last block: fewer operations, counted as such.
    macs = ours.facts["executed_macs" if result.case.contestant in OURS else "macs"]
    return 2 * macs * result.case.batch * PASSES[result.case.mode]


def _row(result, results):
    case = result.case
    ours = fastest(results, OURS, case.precision)
    middle, lower, upper = interleaved.ratio(result, ours)
    shares = [
        _operations(result, ours) / seconds / peak
        for seconds, peak in zip(result.rounds, peaks(results, case.precision), strict=True)
    ]
    return [
        case.contestant,
        case.precision,
        COMPILERS[case.contestant] if case.compiled else "no",
        f"{1000 * result.seconds / case.batch:.2f}",
        f"{middle:.2f}",
        f"{lower:.2f} to {upper:.2f}",
        f"{100 * statistics.median(shares):.0f} %",
        f"{result.memory / 2**20:.0f}",
    ]


def report(results):
    """Returns the tables, in Markdown."""
    check_parameters(results)
    header = [
        "contestant",
        "precision",
        "compiled",
        "ms per image",
        "× keras_vit",
        "quartiles",
        "of peak",
        "peak MiB",
    ]
    models = [r for r in results if "flops" not in r.facts]
    precisions = list(dict.fromkeys(r.case.precision for r in results))
    lines = [markdown(header, [_row(r, results) for r in models]), ""]
    for precision in precisions:
        peak = statistics.median(peaks(results, precision)) / 1e9
        lines.append(f"Peak of a {precision} matrix product: {peak:.0f} GFLOP/s (median).")
    return "\n".join(lines)


def main(argv):
    options = parser().parse_args(argv)
    cases = cases_of(options)
    print(
        f"{options.model}, {options.mode}, batch {options.batch}, {options.image_size} px; "
        f"medians of {options.rounds} interleaved rounds of {options.seconds:g} s.\n"
        f"{machine.describe(options.threads)}\n",
        flush=True,
    )
    with Bar(len(cases) * (1 + options.rounds)) as bar:
        try:
            results = interleaved.run(cases, options.rounds, options.seconds, bar)
        except ContestantError as error:
            print(error, file=sys.stderr)
            return 1
    print(report(results))
    return 0
