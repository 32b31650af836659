"""`python -m benchmarks input_budget`: what Table 3's runs ask of storage and of the hosts' cores.

For each model of Table 3: the least time that the chips take for a step of 4,096 images, the
operations of its layers at the chip's peak, and what has to arrive in that time; and how much of
that the reads of one host bring, a request for each image. A request waits for the store, then
streams:

    images a second of a host = parallel requests / (latency + bytes / bandwidth)
"""

import argparse
from collections.abc import Sequence

from benchmarks.harness import options, roofline
from training import paper_tables as paper
from training.reporting.table import Table

_OPTIONS = {
    "chips": (int, 256, "that train together"),
    "hosts": (int, 64, "that feed them"),
    "cores": (int, 112, "of a host"),
    "images_per_core": (float, 760.0, "a second, decoded and augmented: input_pipeline"),
    "kilobytes": (float, 110.0, "of an encoded image"),
    "latency": (float, 50.0, "milliseconds until a request's first byte"),
    "bandwidth": (float, 100.0, "megabytes a second of one request's stream"),
}


def main(argv: Sequence[str]) -> int:
    """Prints the tables; returns the exit code."""
    parser = options.parser("input_budget", __doc__)
    for name, (kind, default, text) in _OPTIONS.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} ({default:g})")
    parser.add_argument("--chip", choices=sorted(roofline.CHIPS), default="v5e", help="(v5e)")
    chosen = parser.parse_args(argv)
    print(Table(*_demand(chosen)).markdown())
    print()
    print(Table(*_supply(chosen)).markdown())
    print(
        f"\n{chosen.chip}, " + ", ".join(f"{name} {getattr(chosen, name):g}" for name in _OPTIONS)
    )
    return 0


def images_per_second(requests: int, chosen: argparse.Namespace) -> float:
    """Returns how many images a host reads with so many requests at a time."""
    return requests / (chosen.latency / 1e3 + chosen.kilobytes / 1e3 / chosen.bandwidth)


def _demand(chosen):
    import keras_vit

    rows = []
    for model in dict.fromkeys(name for row in paper.TABLE_3 for name in row.models):
        costs = keras_vit.costs(model, num_classes=None)
        operations = 1e18 * costs.exaflops(paper.TABLE_3_BATCH_SIZE)
        seconds = operations / (chosen.chips * roofline.CHIPS[chosen.chip].flops)
        images = paper.TABLE_3_BATCH_SIZE / seconds
        rows.append(
            [
                model,
                f"{1e3 * seconds:.0f}",
                f"{images:,.0f}",
                f"{images * chosen.kilobytes / 1e6:.2f}",
                f"{images / chosen.images_per_core:.0f}",
                f"{images / chosen.hosts:,.0f}",
            ]
        )
    columns = ["model", "ms a step", "images/s", "GB/s", "cores that decode"]
    return [*columns, "images/s a host"], rows


def _supply(chosen):
    from training.data.pipeline import requests_at_once

    many = requests_at_once(chosen.cores)
    # On a disk, tf.data makes as many calls at a time as there are cores.
    rows = [
        ["one a core", chosen.cores, images_per_second(chosen.cores, chosen)],
        ["many, as from a store", many, images_per_second(many, chosen)],
    ]
    decoded = chosen.cores * chosen.images_per_core
    return ["reads of a host", "requests at a time", "images/s read", "images/s decoded"], [
        [name, requests, f"{images:,.0f}", f"{decoded:,.0f}"] for name, requests, images in rows
    ]
